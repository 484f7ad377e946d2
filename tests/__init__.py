"""Tests, and what they share with the benchmarks."""
