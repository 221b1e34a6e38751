"""Trials as the search sees them: observations, the values of objectives and constraints, and curve scores."""
