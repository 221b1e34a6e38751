"""Tells the service's answers from those of other programs, and reads them.

Anything may answer in the service's place: a proxy, the page of a login, another program at its port. An answer counts
as the service's own if it has what `trainer.wire` promises for the call, or if it is one of the service's errors. All
others count as no answer.
"""

from collections.abc import Mapping
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, NamedTuple

import requests

from trainer.client.errors import (
    AgentNameTaken,
    CallRefused,
    DamagedPackage,
    ForeignAnswer,
    LeaseLost,
    ServiceDiskFull,
    ServiceFailed,
    ServiceUnreachable,
)
from trainer.process_log.foreign_answers import EXCERPT, foreign_answer
from trainer.process_log.redaction import redacted

PROBLEM_TYPES = "urn:paceline:error:"
"""The service's URI of an error's type is this and its code."""

AWAY = frozenset({429, 502, 503, 504, 507})
"""The status codes of a service that is away, overloaded or out of disk."""

TOO_LARGE = frozenset({413, 414, 431})
"""Of the status codes with which a proxy refuses a call by itself, those that the same call would get again."""

REFUSED_AS_TOO_LARGE = "too-large"
"""The kind of such a refusal, a proxy's or the service's own."""

SMALL_BYTES = 64_000
"""No proxy has a lower limit for bodies: one that refuses such a call as too large is out of order for a while."""

CONFLICTS: dict[str, type[CallRefused]] = {"lease-lost": LeaseLost, "agent-name-taken": AgentNameTaken}

HOLDERS_CALLS = "/v1/trials/"
LOST = frozenset({401, 404})
"""The status codes with which the service refuses a holder whose trial is deleted, or whose token is no lease of it. It
names the `trial` then, which it does not for a wrong path."""

Fields = Mapping[str, type | UnionType]


class Promise(NamedTuple):
    """What the service answers to a call: an object with these `fields`, 204 without a body, or either of them."""

    fields: Fields | None
    may_be_empty: bool = False


ANSWER: Fields = {"decision": str, "reason": str | NoneType}
FINISHED: Fields = {"status": str, "next": dict | NoneType}
HELD_ATTEMPTS: Fields = {"attempts": list}
ASSIGNMENT: Fields = {
    "trial": str,
    "experiment_id": str,
    "attempt": int,
    "params": dict,
    "config": dict,
    "lease": dict,
    "trainer": dict,
    "run_name": str,
    "storage_path": str,
}
NOTHING = Promise(None, may_be_empty=True)

PROMISES = {
    "claim": Promise(ASSIGNMENT, may_be_empty=True),
    "attempts": Promise(HELD_ATTEMPTS),
    "deletions": NOTHING,
    "leave": NOTHING,
    "reports": Promise(ANSWER),
    "heartbeat": Promise(ANSWER),
    "logs": NOTHING,
    "finish": Promise(FINISHED),
}
"""What each call is answered with, by the last part of its path. The bodies are those of `trainer.wire`, in which later
versions may have more fields; it needs pydantic, which a node may not have."""


def promised(answer: requests.Response, promise: Promise) -> dict[str, Any] | None:
    """The answer's JSON, or None for 204. Raises ForeignAnswer for what the service does not answer to the call."""
    if answer.status_code == requests.codes.no_content and promise.may_be_empty:
        return None
    found = json_object(answer)
    if not _has(found, promise.fields):
        raise foreign(answer)
    following = (found or {}).get("next")
    if following is not None and promise.fields is FINISHED and not _has(following, ASSIGNMENT):
        raise foreign(answer)
    return found


def package_content(answer: requests.Response, package_id: str) -> bytes:
    """The id of a package has the digest of its bytes. Raises DamagedPackage, or ForeignAnswer for what is none."""
    if sha256(answer.content).hexdigest() == package_id.removeprefix("sha256:"):
        return answer.content
    if "Content-Disposition" not in answer.headers:
        raise foreign(answer)
    raise DamagedPackage(
        f"{answer.url} answered with bytes that are not the package's: the service's file is damaged, or a proxy "
        "changes answers; submit the package again as another one, with any change"
    )


def error_of(answer: requests.Response) -> Exception:
    """The error that an answer means which is no success."""
    status, problem = answer.status_code, json_object(answer) or {}
    given = problem.get("type")
    if not isinstance(given, str) or not given.startswith(PROBLEM_TYPES):
        return _error_of_others(answer)
    kind, detail = given.removeprefix(PROBLEM_TYPES), str(problem.get("detail") or answer.reason)
    if status in AWAY:
        away = ServiceDiskFull if status == requests.codes.insufficient_storage else ServiceUnreachable
        return away(f"{answer.url} answers {status}: {detail}")
    if status >= requests.codes.server_error:
        return ServiceFailed(status, kind, detail)
    return _refusal(answer, kind, problem)(status, kind, detail, problem)


def _refusal(answer: requests.Response, kind: str, problem: Mapping[str, Any]) -> type[CallRefused]:
    if answer.status_code in LOST and HOLDERS_CALLS in answer.url and "trial" in problem:
        return LeaseLost
    return CONFLICTS.get(kind, CallRefused) if answer.status_code == requests.codes.conflict else CallRefused


def _error_of_others(answer: requests.Response) -> Exception:
    status = answer.status_code
    if status in AWAY:  # as a proxy says it while the service starts
        return ServiceUnreachable(f"{answer.url} answers {status}")
    found = foreign(answer)
    is_small = status == requests.codes.request_entity_too_large and _sent(answer) <= SMALL_BYTES
    return CallRefused(status, REFUSED_AS_TOO_LARGE, str(found)) if status in TOO_LARGE and not is_small else found


def foreign(answer: requests.Response) -> ForeignAnswer:
    location = answer.headers.get("Location") if answer.is_redirect else None
    beginning = answer.content[: 4 * EXCERPT].decode(errors="replace")
    return ForeignAnswer(foreign_answer(redacted(answer.url), answer.status_code, location, beginning))


def json_object(answer: requests.Response) -> dict[str, Any] | None:
    """The answer's JSON object, if it is one."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _has(found: dict[str, Any] | None, fields: Fields | None) -> bool:
    if found is None or fields is None:
        return False
    return all(name in found and isinstance(found[name], kind) for name, kind in fields.items())


def _sent(answer: requests.Response) -> int:
    """The size of the request's body in bytes."""
    return len(answer.request.body or b"")
