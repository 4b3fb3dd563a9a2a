"""Benchmarks of nearest-label search and one text to its labels."""
