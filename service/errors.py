"""The errors that a caller can meet, as problem details (RFC 9457).

ServiceError
├── BadRequest 400      ├── Conflict 409 ── LeaseLost, WrongState, NameTaken, AgentNameTaken
├── Unauthorized 401    ├── TooLarge 413
├── Forbidden 403       ├── UnsupportedMediaType 415
├── ForeignHost 403     ├── RangeNotSatisfiable 416 (with Content-Range)
├── CrossOrigin 403     ├── Invalid 422 (every mistake with its path)
├── NotFound 404        ├── HeaderTooLarge 431
├── MethodNotAllowed    ├── InternalError 500
│   405 (with Allow)    ├── Unavailable 503 (with Retry-After) ── Busy, TooMuchWork, StorageUnavailable
└── RequestTimeout 408  └── InsufficientStorage 507 (with Retry-After)
"""

import errno
from collections.abc import Sequence
from typing import Any, ClassVar

from search.mistakes import Mistake
from search.numbers_in_messages import counted

MAX_MISTAKES = 100
"""How many mistakes one answer lists. A document can have more of them than its caller can read."""

PROBLEM_TYPES = "urn:paceline:error:"
"""The URI of an error's type is this and its code. docs/reference/errors.md has a section for each."""


class ServiceError(Exception):
    """A request that fails. `detail` is a sentence for a person; `facts` become members of the problem's body."""

    status: ClassVar[int]
    type: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts

    def body(self) -> dict[str, Any]:
        return {
            "type": f"{PROBLEM_TYPES}{self.type}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.facts,
        }


class BadRequest(ServiceError):
    status, type, title = 400, "bad-request", "Bad request"


class Unauthorized(ServiceError):
    status, type, title = 401, "unauthorized", "No valid token"


class Forbidden(ServiceError):
    status, type, title = 403, "forbidden", "Not allowed"


class ForeignHost(ServiceError):
    status, type, title = 403, "foreign-host", "Not a host of this service"


class CrossOrigin(ServiceError):
    status, type, title = 403, "cross-origin", "A web page of another origin"


class NotFound(ServiceError):
    status, type, title = 404, "not-found", "No such thing"


class MethodNotAllowed(ServiceError):
    status, type, title = 405, "method-not-allowed", "No such call"


class RequestTimeout(ServiceError):
    status, type, title = 408, "request-timeout", "The request did not arrive in time"


class Conflict(ServiceError):
    status, type, title = 409, "conflict", "The Idempotency-Key belongs to another request"


class WrongState(Conflict):
    type, title = "wrong-state", "Wrong state"


class NameTaken(Conflict):
    type, title = "name-taken", "The name is taken"


class AgentNameTaken(Conflict):
    type, title = "agent-name-taken", "Another agent works under this name"


class LeaseLost(Conflict):
    type, title = "lease-lost", "The lease no longer holds"


class TooLarge(ServiceError):
    status, type, title = 413, "too-large", "Too large"


class UnsupportedMediaType(ServiceError):
    status, type, title = 415, "unsupported-media-type", "The body has an unsupported type"


class RangeNotSatisfiable(ServiceError):
    """The request's range begins after the end of what it asks for, which has `size` bytes."""

    status, type, title = 416, "range-not-satisfiable", "No such range"

    def __init__(self, size: int) -> None:
        super().__init__(f"the archive has {size} bytes, and the range begins after its end", size=size)


class Invalid(ServiceError):
    """A well-formed body with wrong content, with all mistakes up to `MAX_MISTAKES`; `more` counts the others."""

    status, type, title = 422, "invalid", "The request has mistakes"

    def __init__(self, mistakes: Sequence[Mistake], more: int = 0) -> None:
        self.mistakes = list(mistakes[:MAX_MISTAKES])
        self.more = more + len(mistakes) - len(self.mistakes)
        sentences = [_sentence(str(mistake)) for mistake in self.mistakes]
        super().__init__(
            "; ".join([*sentences, f"and {counted(self.more, 'more mistake')}"] if self.more else sentences),
            errors=[{"path": mistake.where, "message": _sentence(mistake.message)} for mistake in self.mistakes],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Worker processes raise it, too; exceptions are pickled with the arguments of `Exception` by default."""
        return Invalid, (self.mistakes, self.more)


class HeaderTooLarge(ServiceError):
    status, type, title = 431, "header-too-large", "The header is too large"


class InternalError(ServiceError):
    status, type, title = 500, "internal-error", "A fault of the service"


class InsufficientStorage(ServiceError):
    status, type, title = 507, "insufficient-storage", "No room to write"


class Unavailable(ServiceError):
    status, type, title = 503, "unavailable", "Not available now"


class Busy(Unavailable):
    type, title = "busy", "Too many calls of this kind now"


class TooMuchWork(Unavailable):
    type, title = "too-much-work", "Takes too long to compute"


class StorageUnavailable(Unavailable):
    type, title = "storage-unavailable", "The storage of checkpoints cannot be read"


def _sentence(text: str) -> str:
    """Pydantic's messages name no field: `Input should be …` follows the field's path as `should be …`."""
    return text.replace("Input should", "should")


def no_such_experiment(name_or_id: str) -> NotFound:
    return NotFound(f"there is no experiment {name_or_id!r}; GET /v1/experiments lists them")


def no_such_trial(trial_id: str) -> NotFound:
    return NotFound(f"there is no trial {trial_id!r}", trial=trial_id)


def not_written(what: str, error: OSError) -> ServiceError:
    """The answer where a file of the service cannot be written, so that the caller repeats the call later."""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return (InsufficientStorage if is_full else Unavailable)(f"{what} could not be written: {error.strerror}")
