"""Benchmarks of the service and the store of changes."""
