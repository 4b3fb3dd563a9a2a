"""Retrievers: one class a row of ``RETRIEVERS``."""
