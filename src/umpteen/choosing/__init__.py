"""Settings that follow from the data: facts, rules, and what they choose together."""
