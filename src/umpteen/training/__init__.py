"""Training: batches, the loop, checkpoints, and the run that ties them together."""
