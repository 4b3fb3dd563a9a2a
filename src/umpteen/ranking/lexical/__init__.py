"""Lexical scorers: tf-idf, the sparse linear ranker, one-vs-rest and sparse top-k search."""
