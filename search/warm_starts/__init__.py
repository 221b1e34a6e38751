"""Proposals from earlier experiments, as far as their rankings agree with this experiment's own results."""
