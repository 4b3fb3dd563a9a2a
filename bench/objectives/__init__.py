"""Benchmarks of objectives over all labels."""
