"""The retrievers, one file for each kind."""
