"""Answers made of several views: memory of training queries, exact words, fusion, calibration."""
