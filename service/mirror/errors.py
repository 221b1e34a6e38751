"""Why MLflow did not get what it was sent."""


class MlflowAway(Exception):
    """MLflow does not answer, or not as MLflow does: nothing can be mirrored now."""


class MlflowRefused(Exception):
    """MLflow answered and did not take what it was sent: one experiment cannot be mirrored."""
