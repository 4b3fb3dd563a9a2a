"""Benchmarks of training runs, their steps, and what they read."""
