"""Benchmarks: six commands, each with its subjects. ``python -m bench --help`` lists them."""
