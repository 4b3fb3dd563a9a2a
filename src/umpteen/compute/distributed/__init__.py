"""Collectives between ranks and the sharding of labels."""

SHARDED_BYTES = 1 << 30
"""Label vectors that would take more in float32 stay on the rank that encodes them."""
