"""Numerical building blocks: packing, precision, kernels, streaming, optimizer updates, ranks."""
