"""The one place that opens images: their bytes, headers, pixels, and what is remembered of them."""
