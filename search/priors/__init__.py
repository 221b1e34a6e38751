"""What the user knows of the parameters: proposals from it beside the sampler's, as long as they do well."""
