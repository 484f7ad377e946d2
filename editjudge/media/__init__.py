"""Images: their bytes, headers and pixels, and caches for them. Other packages open images only through this one."""
