"""A model server for tests and benchmarks: it speaks the wire formats, and fails on demand."""
