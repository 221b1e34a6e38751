"""What the OpenAPI document says of the API as a whole."""

API_VERSION = "1.0.0"
"""Of the contract: within version 1, changes only add to it."""

SUMMARY = "Hyperparameter search over Ray Train."
DESCRIPTION = """\
A service that proposes configurations, runs each as a trial, and stops those that fall behind.

- Bodies and answers are JSON. Specs, changes and configurations may also be YAML (`application/yaml`).
- Unknown fields and query parameters are mistakes, and so are names that are written twice.
- Errors are `application/problem+json` (RFC 9457). `detail` says what is wrong, and `type` which error it is:
  docs/reference/errors.md says for each what to do.
- Each answer has the header `X-Request-ID`: the caller's own, or one that the service makes. Errors have it as
  `request`.
- A request with several faults gets the first answer in this order: 401, 403, 400, 404, 409 for a lost lease, 422, any
  other 409.
- Lists have pages: `next_cursor` of one page is the parameter `cursor` of the next, until it is null.
- Times are UTC in ISO 8601; durations are seconds.
- Each call with GET answers HEAD, too.
- Version 1 only grows: paths, parameters, fields and kinds of events may be added; nothing is removed or narrowed.
"""
TAGS = [
    {"name": "experiments", "description": "Start, read, change and end experiments."},
    {"name": "trials", "description": "Read, add, stop and retry the trials of an experiment."},
    {"name": "running trials", "description": "For agents, and for programs that run trials themselves."},
    {"name": "packages", "description": "The code of training functions."},
    {"name": "spaces", "description": "Try out a search space without running anything."},
    {"name": "health", "description": "For probes and Prometheus."},
]
