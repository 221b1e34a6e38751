"""Calls of MLflow that are repeated immediately: of MLflow behind a bad proxy, some calls of each batch fail."""

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from mlflow.exceptions import MlflowException, RestException

ATTEMPTS = 6
SERVER_ERROR = 500
_AWAY = (TimeoutError, ConnectionRefusedError)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def repeated(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Call up to ATTEMPTS times until MLflow does not fail. The call must be idempotent.

    A call that MLflow refuses is not repeated. Nor is one that fails because MLflow is away, or that takes too long:
    such a call costs seconds.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return call(*args, **kwargs)
        except MlflowException as error:
            if is_refusal(error) or any(isinstance(cause, _AWAY) for cause in causes(error)):
                raise
    return call(*args, **kwargs)


def is_refusal(error: MlflowException) -> bool:
    """Whether MLflow has answered that the request is wrong."""
    return isinstance(error, RestException) and error.get_http_status_code() < SERVER_ERROR


def has_timed_out(error: MlflowException) -> bool:
    return any(isinstance(cause, TimeoutError) for cause in causes(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error itself, too."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
