"""Collectives between ranks and the sharding of labels."""
