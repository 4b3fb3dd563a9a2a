"""Studies: several runs from one TOML file, one table and plots from their results."""
