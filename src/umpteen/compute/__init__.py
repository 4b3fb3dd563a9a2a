"""Ways to run any objective or encoder in bounded memory and at a chosen precision."""
