"""Calls of an MLflow tracking server, with the mirror's own errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from service.mirror.mlflow_errors import MlflowRefused, MlflowUnavailable, MlflowUnreachable
from service.mirror.mlflow_limits import text
from service.mirror.tracking_server.call_retries import (
    causes,
    is_mlflow_unreachable,
    is_refusal,
    is_too_large,
    retry_after,
)
from service.mirror.tracking_server.refused_uploads import LARGER_BODIES
from service.mirror.tracking_server.requested_pause import RequestedPause
from service.mirror.tracking_server.retry_after import note_retry_after
from service.settings import without_credentials

# A dead server must cost seconds, not minutes. No retries inside the client, which would create a run twice when an
# answer is lost: before a creation is retried, `find_or_create` looks for what exists.
_CLIENT_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_MESSAGE_LENGTH, _READ_LENGTH = 400, 4000
"""Of MLflow's messages, in characters: shown, and searched for credentials."""
ADVICE = "is PACELINE_MLFLOW_URI right, or is a proxy in between?"


class TrackingCalls:
    """A tracking server, whose calls raise MlflowUnavailable or MlflowRefused."""

    def __init__(self, uri: str, pause: RequestedPause | None = None) -> None:
        for name, value in _CLIENT_SETTINGS.items():
            os.environ.setdefault(name, value)
        note_retry_after()
        self.uri = uri
        self._pause = pause or RequestedPause()
        self._client = MlflowClient(tracking_uri=uri)

    def _id(self, answered: Any) -> str:
        """MLflow's client takes an empty answer, or `{}`, of whatever program for one of MLflow."""
        if not answered:
            raise self._foreign_answer()
        return str(answered)

    def _foreign_answer(self) -> MlflowUnavailable:
        where = without_credentials(self.uri)
        return MlflowUnavailable(f"{where} answered without an id, as MLflow never does; {ADVICE}")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        self._pause.check()
        try:
            yield
        except MlflowException as error:
            message = excerpt(error.message)
            error.args = (message,)  # in tracebacks
            if is_refusal(error):
                raise MlflowRefused(f"MLflow refused: {message}") from error
            asked = retry_after(error)
            if asked is not None:
                self._pause.begin(asked)
            raise _unavailable(without_credentials(self.uri), message, error) from error


def excerpt(message: str) -> str:
    """One line, without credentials. MLflow's client quotes a foreign answer: its status, and then its whole body."""
    return text(" ".join(without_credentials(message[:_READ_LENGTH]).split()), _MESSAGE_LENGTH)


def _unavailable(uri: str, message: str, error: MlflowException) -> MlflowUnavailable:
    """An error of one line. MLflow's own message about an absent server has five, full of its libraries' objects."""
    reasons = (cause.strerror for cause in causes(error) if isinstance(cause, OSError))
    reason = next((one for one in reasons if isinstance(one, str) and one), None)  # of requests, it may be any object
    if is_mlflow_unreachable(error):
        why = reason or "no connection in time"
        return MlflowUnreachable(f"MLflow is not reachable at {uri}: {why.lower()}; the mirror goes on when it is")
    asked = retry_after(error)
    if asked:
        return MlflowUnavailable(f"MLflow at {uri} asks for a pause of {asked:.0f} s (Retry-After)")
    if is_too_large(error):
        return MlflowUnavailable(f"a proxy before MLflow at {uri} takes no body of this size (413): {LARGER_BODIES}")
    if reason is None:
        return MlflowUnavailable(f"MLflow at {uri} cannot be used: {message}")
    return MlflowUnavailable(f"MLflow does not answer at {uri}: {reason.lower()}; the mirror goes on when it does")
