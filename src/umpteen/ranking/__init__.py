"""Retrieval, scoring and ranking of labels."""
