"""Settings of a run: schema, checks, presets, and defaults that follow from the data."""
