"""Benchmarks, and the loopback server that stands in for paid judges."""
