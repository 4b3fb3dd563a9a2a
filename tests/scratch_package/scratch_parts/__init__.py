"""Parts of another package, each written from the guide alone."""
