"""Hyperparameter search as functions of the history: what to try next, and what to stop. No SQL, no HTTP, no Ray."""
