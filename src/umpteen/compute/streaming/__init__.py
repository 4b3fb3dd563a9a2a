"""Objectives over all labels, in blocks of labels."""
