"""What an answer says beside MLflow's error: the pause that it asks for, and that a body is too large.

MLflow's client raises an error without the answer, and of an answer in JSON even without the status.
"""

import logging
from typing import Any

from mlflow.utils import request_utils
from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import InvalidHeader, MaxRetryError

_ATTRIBUTE = "paceline_retry_after"
_TOO_LARGE = 413
log = logging.getLogger(__name__)


class NotingRetry(Retry):
    """Notes with the error of the last attempt for how many seconds the answer asks.

    It does so for the statuses that MLflow's client could repeat: 408, 429, 500, 502, 503 and 504.
    """

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """True for 413, too, so that the error shows this status. The error of an upload (PUT) has the answer."""
        is_too_large = method == "POST" and status_code == _TOO_LARGE
        return is_too_large or super().is_retry(method, status_code, has_retry_after)

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
            if response is not None and response.status != _TOO_LARGE:  # a smaller body need not wait
                setattr(error, _ATTRIBUTE, self._seconds(response))
            raise

    def _seconds(self, response: BaseHTTPResponse) -> float | None:
        try:
            return self.get_retry_after(response)
        except InvalidHeader:
            return None


def note_retry_after() -> None:
    """Have MLflow's client use it, in whose module this is urllib3's class. It must not have called MLflow before."""
    present = getattr(request_utils, "Retry", None)
    if present is Retry:
        request_utils.Retry = NotingRetry
    elif present is not NotingRetry:
        log.warning("this version of MLflow's client hides the pauses that MLflow asks for (Retry-After)")


def noted_retry_after(error: BaseException) -> float | None:
    """In seconds; None for an error without one."""
    return getattr(error, _ATTRIBUTE, None)
