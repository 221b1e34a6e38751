"""HTTP to the service, as those who run trials need it. Uses `requests` alone, which every node with Ray has."""

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import requests

logger = logging.getLogger("paceline")

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
# Where nothing wakes who waits.
LONGEST_DEAF_SECONDS = 1.0
# Between the tries of a call at which the service fails; after the last it counts as refused.
FAILURE_PAUSES = (0.5, 1.0, 2.0, 4.0)

# What a service that is away, overloaded or out of disk says, or a proxy in front of it.
AWAY = frozenset({429, 502, 503, 504, 507})

# Of the refusals that a proxy makes by itself, those that the same call would meet again.
TOO_LARGE = frozenset({413, 414, 431})

Answered = TypeVar("Answered")


class ServiceUnreachable(Exception):
    """No answer, or one that says to come back later (AWAY): the same call may succeed."""


class CallRefused(Exception):
    """The service understood and said no: the same call will fail again."""

    def __init__(self, status: int, kind: str, detail: str, facts: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {kind}: {detail}")
        self.status, self.kind, self.detail, self.facts = status, kind, detail, facts or {}


class LeaseLost(CallRefused):
    """The attempt is no longer ours."""


class AgentNameTaken(CallRefused):
    """Another agent works under our name: `facts["holder"]`, as `trainer.wire.Instance`."""


class ServiceFailed(CallRefused):
    """The service failed at the call (500, or an answer that is not JSON), each time it was tried."""


CONFLICTS: dict[str, type[CallRefused]] = {"lease-lost": LeaseLost, "agent-name-taken": AgentNameTaken}


@dataclass(frozen=True)
class Package:
    content: bytes
    filename: str


class ServiceClient:
    """Calls to one service with one token. Not for several threads at once: a session is one connection."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between a cluster and its control plane, and no netrc
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def post(self, path: str, body: dict[str, Any], *, read_seconds: float = READ_SECONDS) -> dict[str, Any] | None:
        """The answer's JSON, or None for 204. Raises ServiceUnreachable, LeaseLost, ServiceFailed or CallRefused."""
        return _persistently(lambda: _object(self._send("POST", path, read_seconds, json=body)))

    def get(self, path: str) -> dict[str, Any]:
        """The answer's JSON. Raises as `post`."""
        return _persistently(lambda: _object(self._send("GET", path, READ_SECONDS)) or {})

    def package(self, package_id: str) -> Package:
        """Raises as `post`."""
        answer = _persistently(lambda: self._send("GET", f"/v1/packages/{package_id}", READ_SECONDS))
        named = re.search(r'filename="?([^";]+)"?', answer.headers.get("Content-Disposition", ""))
        return Package(answer.content, named.group(1) if named else "package.zip")

    def _send(self, method: str, path: str, read_seconds: float, **kwargs: Any) -> requests.Response:
        try:
            answer = self._session.request(method, self._url + path, timeout=(CONNECT_SECONDS, read_seconds), **kwargs)
        except requests.RequestException as error:
            raise ServiceUnreachable(f"{self._url} does not answer: {type(error).__name__}") from error
        if answer.ok:
            return answer
        raise _refusal(answer)


def _persistently(call: Callable[[], Answered]) -> Answered:
    """Try again a few times where the service fails: it may, or may not, be the call that it can't take."""
    for pause in FAILURE_PAUSES:
        try:
            return call()
        except ServiceFailed as failed:
            logger.debug("trying again: %s", failed)
            time.sleep(pause)
    return call()


def _object(answer: requests.Response) -> dict[str, Any] | None:
    if answer.status_code == requests.codes.no_content or not answer.content:
        return None
    found = _json(answer)
    if found is None:
        raise ServiceFailed(answer.status_code, "not-json", f"{answer.url} answers with something else than an object")
    return found


def _json(answer: requests.Response) -> dict[str, Any] | None:
    """The answer's object, if it is one."""
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refusal(answer: requests.Response) -> Exception:
    status = answer.status_code
    if status in AWAY:
        return ServiceUnreachable(f"{answer.url} answers {status}")
    problem = _json(answer) or {}
    if status < requests.codes.server_error and status not in TOO_LARGE and "type" not in problem:
        return ServiceUnreachable(f"{answer.url} answers {status}, which is not the service's own word")
    kind = str(problem.get("type", "about:blank"))
    detail = str(problem.get("detail") or problem.get("title") or answer.reason)
    if status >= requests.codes.server_error:
        return ServiceFailed(status, kind, detail)
    refused = CONFLICTS.get(kind, CallRefused) if status == requests.codes.conflict else CallRefused
    return refused(status, kind, detail, problem)


def pauses() -> Iterator[float]:
    """How long to wait before each next try, in seconds: longer and longer, never the same for all."""
    spread = random.Random()  # noqa: S311 - no secret; and not the one that user code seeds and draws from
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause * spread.uniform(0.5, 1.0)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def post_until_answered(
    service: ServiceClient, path: str, body: dict[str, Any], over: threading.Event
) -> dict[str, Any] | None:
    """`post`, again and again while the service is away.

    Raises LeaseLost and CallRefused at once, ServiceUnreachable when it is `over`.
    """
    for pause in pauses():
        try:
            return service.post(path, body)
        except ServiceUnreachable as error:
            if over.wait(pause):
                raise
            logger.debug("trying %s again: %s", path, error)
    raise AssertionError("pauses() never ends")


def download_package(service: ServiceClient, package_id: str, given_up: Callable[[], bool]) -> Package:
    """The package, asked for again and again while the service is away.

    Raises CallRefused at once, ServiceUnreachable when it is `given_up`.
    """
    for pause in pauses():
        try:
            return service.package(package_id)
        except ServiceUnreachable as error:
            if given_up():
                raise
            logger.debug("asking for package %s again: %s", package_id, error)
            time.sleep(min(pause, LONGEST_DEAF_SECONDS))
    raise AssertionError("pauses() never ends")
