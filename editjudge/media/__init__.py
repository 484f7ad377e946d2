"""Images: their bytes, headers and pixels, and the caches of these. Other packages open images only through this
one.
"""
