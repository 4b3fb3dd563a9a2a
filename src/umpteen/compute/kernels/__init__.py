"""Triton kernels and fused transformer blocks, each with a plain expression beside it."""
