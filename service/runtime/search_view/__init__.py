"""What the search gets to see of experiments and trials, in its own terms."""
