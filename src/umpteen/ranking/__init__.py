"""Combine the scores of several retrievers into one ranking with probabilities."""
