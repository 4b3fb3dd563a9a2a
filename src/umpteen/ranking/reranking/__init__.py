"""Re-ranking: score the best candidates of the ensemble again, text and label read together."""
