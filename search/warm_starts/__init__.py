"""Warm starts: which trials of earlier experiments a search learns from, and proposals by these experiments.

The latter are made as far as the rankings of the experiments agree with this experiment's own results.
"""
