"""Retries calls of MLflow after a short pause: behind a bad proxy, some calls of each batch fail."""

import errno
import re
import socket
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import ParamSpec, TypeVar

import requests
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
from mlflow.exceptions import MlflowException, RestException
from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, ErrorCode

from service.mirror.tracking_server.retry_after import noted_retry_after

ATTEMPTS = 6
FIRST_PAUSE_SECONDS = 0.05
"""Before the second attempt; twice as long before each further one."""
LONGEST_PAUSE_SECONDS = 1.0
"""A longer one that MLflow asks for is not waited for within a call."""
SLOW_SECONDS = 1.0
SERVER_ERROR, TOO_LARGE, TOO_MANY_REQUESTS, GATEWAY_TIMEOUT = 500, 413, 429, 504
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH)
_EXISTS = ErrorCode.Name(RESOURCE_ALREADY_EXISTS)
_STATUS = re.compile(
    r"too many (\d{3}) error responses|API request to endpoint \S+ failed with error code (\d{3}) .*", re.DOTALL
)
"""The text of urllib3's error after an answer with one of the statuses that MLflow's client could repeat, and that of
MLflow's client after a page with another status."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class CallTookTooLong(MlflowException):  # type: ignore[misc] # MLflow's types are not checked
    """A call has failed after seconds, or a proxy has waited for it too long. MLflow may still execute it."""


class ForeignAnswer(MlflowException):  # type: ignore[misc] # MLflow's types are not checked
    """The answer is JSON, but not of MLflow's form: another program, such as a proxy, may have sent it."""


def retried(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Call up to ATTEMPTS times until MLflow does not fail. The call must be idempotent.

    A call that MLflow refuses is not retried, nor one that fails because MLflow is away or asks for fewer calls,
    unless it asks for a short pause. Nor is one that takes too long; it raises CallTookTooLong.
    """
    failures = _Failures()
    while True:
        try:
            return _timed(call, *args, **kwargs)
        except MlflowException as error:
            failures.pause_after(error)


def find_or_create(find: Callable[[], Result | None], create: Callable[[], Result]) -> tuple[Result, bool]:
    """Return what `find` finds, else what `create` creates, and whether a creation has failed before.

    A creation is retried as an idempotent call is, but only if `find` does not find what the failed one has created.
    MLflow may still execute a creation that has failed, and so create a second one later.
    """
    failures = _Failures()
    while True:
        found = find()
        if found is not None:
            return found, failures.count > 0
        try:
            return _timed(create), failures.count > 0
        except MlflowException as error:
            failures.pause_after(error)


class _Failures:
    """The failures of the attempts of one call."""

    def __init__(self) -> None:
        self.count = 0

    def pause_after(self, error: MlflowException) -> None:
        """Return when it is time for another attempt. Raise the error if the call is not worth one."""
        self.count += 1
        if self.count == ATTEMPTS or not _is_worth_retrying(error):
            raise error
        sleep(max(FIRST_PAUSE_SECONDS * 2 ** (self.count - 1), retry_after(error) or 0.0))


def is_refusal(error: MlflowException) -> bool:
    """Whether MLflow has answered that the request is wrong."""
    return isinstance(error, RestException) and error.get_http_status_code() < SERVER_ERROR


def _is_worth_retrying(error: MlflowException) -> bool:
    if is_refusal(error):  # another creation of the same name has been executed after all
        return bool(error.error_code == _EXISTS)
    if isinstance(error, CallTookTooLong) or is_mlflow_unreachable(error):
        return False
    asked = retry_after(error)
    return _status(error) not in {TOO_LARGE, TOO_MANY_REQUESTS} if asked is None else asked <= LONGEST_PAUSE_SECONDS


def retry_after(error: MlflowException) -> float | None:
    """The pause in seconds that an answer asks for; None if there is none."""
    return next((one for one in map(noted_retry_after, causes(error)) if one is not None), None)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error itself, too."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _timed(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    began = monotonic()
    try:
        return call(*args, **kwargs)
    except (ParseError, TypeError) as error:  # a TypeError for an `error_code` that is a list
        raise ForeignAnswer(f"an answer has not the form of MLflow's: {error}") from error
    except MlflowException as error:
        is_slow = monotonic() - began > SLOW_SECONDS
        if is_refusal(error) or not (is_slow or _has_timed_out(error)):
            raise
        # Not from the error, whose text may show credentials in a traceback.
        raise CallTookTooLong(error.message) from (error.__cause__ or error.__context__)


def _has_timed_out(error: MlflowException) -> bool:
    return _status(error) == GATEWAY_TIMEOUT or any(isinstance(cause, TimeoutError) for cause in causes(error))


def is_too_large(error: MlflowException) -> bool:
    """Whether a proxy before MLflow takes no body of this size."""
    return _status(error) == TOO_LARGE


def is_mlflow_unreachable(error: MlflowException) -> bool:
    """Whether no server was found, so that MLflow has not got the call."""
    away = (ConnectionRefusedError, socket.gaierror, requests.ConnectTimeout)
    return any(
        isinstance(cause, away) or (isinstance(cause, OSError) and cause.errno in _UNREACHABLE)
        for cause in causes(error)
    )


def _status(error: MlflowException) -> int | None:
    """The status of an answer that MLflow's client shows by an error's text alone."""
    found = (_STATUS.fullmatch(str(cause)) for cause in causes(error))
    return next((int(match[1] or match[2]) for match in found if match), None)
