"""From disk to batches: data sets, label sets, formats, tokens, pools and samplers."""
