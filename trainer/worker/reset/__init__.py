"""The reset of a worker process between two trials: the second must not see what the first has changed."""
