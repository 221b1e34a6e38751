"""Why an artifact could not be stored, and what to do. Pure. MLflow's client passes on the errors of requests."""

import errno

import requests

from service.mirror.mlflow_limits import text

_MESSAGE_LENGTH = 200
LARGER_BODIES = "raise the proxy's limit for bodies, which is client_max_body_size in nginx"
_ADVICE = {
    401: "check the user and password of MLflow for the service",
    403: "allow the service to write artifacts",
    404: "start MLflow with --serve-artifacts, and let the proxy pass /api/2.0/mlflow-artifacts",
    405: "let the proxy pass PUT to /api/2.0/mlflow-artifacts",
    413: LARGER_BODIES,
}
_SERVER_ERROR = 500
_PASSING = (408, 429)
_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
"""Of an artifact store that is a folder, to which the service cannot write."""
_LOCAL_ADVICE = "start MLflow with --serve-artifacts, or let the service write there"


def is_refused_upload(error: OSError) -> bool:
    """Whether the same file will be refused for a while, too."""
    if not isinstance(error, requests.RequestException):
        return error.errno in _ERRNOS
    status = error.response.status_code if error.response is not None else _SERVER_ERROR
    return status < _SERVER_ERROR and status not in _PASSING


def why_refused(size: int, error: OSError) -> str:
    """`(12345 bytes) was refused with 413 Request Entity Too Large; raise the proxy's limit …`"""
    response = error.response if isinstance(error, requests.HTTPError) else None
    if response is None:
        return f"({size} bytes) cannot be written: {text(str(error), _MESSAGE_LENGTH)}; {_LOCAL_ADVICE}"
    advice = _ADVICE.get(response.status_code)
    return f"({size} bytes) was refused with {_described(response)}" + (f"; {advice}" if advice else "")


def _described(response: requests.Response) -> str:
    """The status, and MLflow's message. A page of a proxy only repeats its status."""
    said = " ".join(response.text.split())
    status = f"{response.status_code} {response.reason}".strip()
    return status if not said or said.startswith("<") else f"{status} ({text(said, _MESSAGE_LENGTH)})"
