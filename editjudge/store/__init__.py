"""What was judged, kept for good: one schema, SQLite by default."""
