"""Optimizer updates of single rows of a table, with 8-bit moments and bfloat16 vectors."""
