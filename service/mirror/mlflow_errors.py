"""Why MLflow did not take a write, or has got none."""


class MlflowUnavailable(Exception):
    """MLflow does not answer, or answers with a server error: another call may still succeed."""


class MlflowUnreachable(MlflowUnavailable):
    """There is no server at MLflow's address: no experiment can be mirrored now."""


class MlflowPaused(MlflowUnavailable):
    """MLflow has asked for a pause, which has not passed: it was not called."""


class MlflowRefused(Exception):
    """MLflow rejected the request: this experiment cannot be mirrored."""


class MlflowRunDeleted(MlflowRefused):
    """The run that was to be written is deleted in MLflow: it can be restored."""


class MlflowRunGone(MlflowRunDeleted):
    """MLflow has no such run: it has removed it, or another server is at its address."""


class MlflowRefusedFiles(MlflowRefused):
    """Some artifacts were refused, by MLflow or a proxy before it, as they will be for a while."""
