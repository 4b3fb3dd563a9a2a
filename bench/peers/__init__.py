"""Benchmarks of other libraries on the same data."""
