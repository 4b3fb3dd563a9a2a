"""Names of the heads that predictions, metrics and reports refer to."""

HEADS = ("dual", "classifier")
"""The heads a model can have, in the order of their columns."""
COMBINED = "combined"
"""The head that adds the scores of both."""
ENSEMBLE = "ensemble"
"""The head that weighs all scorers; fitted after training."""
