"""What benchmarks share: timing, tables, results with machine facts, arguments, trainings."""
