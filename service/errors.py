"""The errors that a caller can meet, as problem details (RFC 9457).

ServiceError
├── BadRequest 400      ├── Conflict 409 ── LeaseLost, WrongState, NameTaken, AgentNameTaken
├── Unauthorized 401    ├── TooLarge 413
├── Forbidden 403       ├── UnsupportedMediaType 415
├── ForeignHost 403     ├── Invalid 422 (every mistake with its path)
├── CrossOrigin 403     ├── Unavailable 503 (with Retry-After)
└── NotFound 404        └── InsufficientStorage 507
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from search.mistakes import Mistake


class ServiceError(Exception):
    """A request that fails. `detail` is a sentence for a person; `facts` become members of the problem's body."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "error"
    title: ClassVar[str] = "Error"

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts

    def body(self) -> dict[str, Any]:
        return {
            "type": self.type,
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


class Conflict(ServiceError):
    status, type, title = 409, "conflict", "Wrong state"


class WrongState(Conflict):
    type = "wrong-state"


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


class Invalid(ServiceError):
    """A well-formed body with wrong content. `mistakes` holds all of its mistakes, not only the first."""

    status, type, title = 422, "invalid", "The body has mistakes"

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__(
            "; ".join(_sentence(str(mistake)) for mistake in mistakes),
            errors=[{"path": mistake.where, "message": _sentence(mistake.message)} for mistake in mistakes],
        )
        self.mistakes = list(mistakes)


class InsufficientStorage(ServiceError):
    status, type, title = 507, "insufficient-storage", "No room to write"


class Unavailable(ServiceError):
    status, type, title = 503, "unavailable", "Not available now"


def _sentence(text: str) -> str:
    """Pydantic's messages name no field: `Input should be …` follows the field's path as `should be …`."""
    return text.replace("Input should", "should")
