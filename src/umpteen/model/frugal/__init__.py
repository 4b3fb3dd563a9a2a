"""Encoders that need no download and train on a CPU: token vectors and a little on top."""
