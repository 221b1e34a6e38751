"""The Retry-After of an answer with 429 or 503, which MLflow's client shows by an error without the answer."""

from typing import Any

from mlflow.utils import request_utils
from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import InvalidHeader, MaxRetryError

_ATTRIBUTE = "paceline_retry_after"


class NotingRetry(Retry):
    """Notes with the error of the last attempt for how many seconds the answer asks."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        *args: Any,
        **facts: Any,
    ) -> "NotingRetry":
        try:
            return super().increment(method, url, response, *args, **facts)
        except MaxRetryError as error:
            setattr(error, _ATTRIBUTE, None if response is None else self._seconds(response))
            raise

    def _seconds(self, response: BaseHTTPResponse) -> float | None:
        try:
            return self.get_retry_after(response)
        except InvalidHeader:
            return None


def note_retry_after() -> None:
    """Have MLflow's client use it, in whose module this is urllib3's class. It must not have called MLflow before."""
    request_utils.Retry = NotingRetry


def noted_retry_after(error: BaseException) -> float | None:
    """In seconds; None for an error without one."""
    return getattr(error, _ATTRIBUTE, None)
