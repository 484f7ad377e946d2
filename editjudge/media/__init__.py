"""The one place that opens pictures: what a file is, its pixels, and what is remembered of it."""
