"""Benchmarks of the ensemble, its lexical scorers and added labels."""
