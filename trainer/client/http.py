"""HTTP calls to the service. They need only `requests`, which is installed wherever Ray is."""

import contextlib
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import requests

from trainer.client.addresses import ServiceAddresses
from trainer.process_log.context import log_context, new_request_id
from trainer.process_log.redaction import redacted
from trainer.traces import TRACEPARENT, tracing

logger = logging.getLogger("paceline")

SERVICES_HEADER = "Paceline-Services"
"""In the answers to claims and heartbeats: the addresses of all service processes, with spaces between them."""

REQUEST_ID = "X-Request-ID"
"""The service's log has the same id for the same call."""

LATE_SECONDS = 0.4
"""If there are other addresses: how long after it was due an answer counts as late. A service that is then late with
another answer, too, is left."""

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 5.0
CANCEL_CHECK_SECONDS = 1.0
"""How often a download that waits for the service checks whether it is cancelled."""

FAILURE_DELAYS = (0.5, 1.0, 2.0, 4.0)
"""Between the tries of a call at which the service fails. After the last try the call counts as refused."""

AWAY = frozenset({429, 502, 503, 504, 507})
"""The status codes of a service that is away, overloaded or out of disk, or of a proxy in front of it."""

TOO_LARGE = frozenset({413, 414, 431})
"""Of the status codes with which a proxy refuses a call by itself, those that the same call would get again."""

SMALL_BYTES = 64_000
"""No proxy has a lower limit for bodies: one that refuses such a call as too large is out of order for a while."""

Answer = TypeVar("Answer")


class ServiceUnreachable(Exception):
    """No answer, or one that asks to try later (AWAY): the same call may succeed.

    The message may become the error of an attempt, which the service shows: a password in an address is left out.
    """

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class ServiceDiskFull(ServiceUnreachable):
    """The service has no room for what the call would store."""


class AnswerLate(ServiceUnreachable):
    """No answer in time, although there is a connection."""


class CallRefused(Exception):
    """The service understood the call and refused it: the same call would be refused again."""

    def __init__(self, status: int, kind: str, detail: str, facts: dict[str, Any] | None = None) -> None:
        super().__init__(f"{status} {kind}: {detail}")
        self.status, self.kind, self.detail, self.facts = status, kind, detail, facts or {}


class LeaseLost(CallRefused):
    """The trial has another holder, or has ended."""


class AgentNameTaken(CallRefused):
    """Another process uses this agent's name: `facts["holder"]`, as `trainer.wire.Instance`."""


class ServiceFailed(CallRefused):
    """The service failed at the call (500, or an answer that is not JSON) at every try."""


SYSTEM_METRICS = "system_metrics"
"""The field of heartbeats and ends that has the samples of the nodes."""

PROBLEM_TYPES = "urn:paceline:error:"
"""The service's URI of an error's type is this and its code."""

CONFLICTS: dict[str, type[CallRefused]] = {"lease-lost": LeaseLost, "agent-name-taken": AgentNameTaken}


@dataclass(frozen=True)
class Package:
    content: bytes
    filename: str


class ServiceClient:
    """Calls to the service with one token. Not thread-safe: it has one connection.

    A call that gets no answer at one address is repeated at the next one. All calls may be repeated: the service gives
    the same answer.
    """

    def __init__(self, addresses: ServiceAddresses | str, token: str | None) -> None:
        self._addresses = ServiceAddresses(addresses) if isinstance(addresses, str) else addresses
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between a cluster and its control plane, and no netrc
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    @property
    def has_alternatives(self) -> bool:
        """Whether it can go to another address when the service does not answer at one."""
        return self._addresses.has_others

    def post(self, path: str, body: dict[str, Any], *, read_seconds: float = READ_SECONDS) -> dict[str, Any] | None:
        """The answer's JSON, or None for 204. Raises ServiceUnreachable, LeaseLost, ServiceFailed or CallRefused.

        The service may hold the call for the `wait_seconds` of the body.
        """
        due = float(body.get("wait_seconds", 0)) + LATE_SECONDS
        with log_context.request():
            return _with_retries(lambda: _json_object(self._send("POST", path, read_seconds, due, json=body)))

    def get(self, path: str) -> dict[str, Any]:
        """The answer's JSON. Raises as `post`."""
        with log_context.request():
            return _with_retries(lambda: _json_object(self._send("GET", path, READ_SECONDS)) or {})

    def package(self, package_id: str) -> Package:
        """Raises as `post`."""
        with log_context.request():
            answer = _with_retries(lambda: self._send("GET", f"/v1/packages/{package_id}", READ_SECONDS))
        named = re.search(r'filename="?([^";]+)"?', answer.headers.get("Content-Disposition", ""))
        return Package(answer.content, named.group(1) if named else "package.zip")

    def _send(
        self, method: str, path: str, read_seconds: float, due_seconds: float = LATE_SECONDS, **kwargs: Any
    ) -> requests.Response:
        """Call each address until one answers, first the one that answered last."""
        if not self._addresses.has_others:
            return self._send_to(method, self._addresses.current, path, (CONNECT_SECONDS, read_seconds), **kwargs)
        failed: list[ServiceUnreachable] = []
        for _ in self._addresses.all:
            address = self._addresses.current
            try:
                return self._send_impatiently(method, address, path, (due_seconds, read_seconds), **kwargs)
            except ServiceUnreachable as error:
                failed.append(error)
                self._addresses.leave(address)
        raise failed[-1]

    def _send_impatiently(
        self, method: str, address: str, path: str, due_and_read: tuple[float, float], **kwargs: Any
    ) -> requests.Response:
        """Wait longer than the call should take only if the service answers another call meanwhile."""
        due, read = due_and_read
        try:
            return self._send_to(method, address, path, (LATE_SECONDS, min(due, read)), **kwargs)
        except AnswerLate:
            with contextlib.suppress(CallRefused):
                self._send_to("GET", address, "/healthz", (LATE_SECONDS, LATE_SECONDS))
            return self._send_to(method, address, path, (CONNECT_SECONDS, read), **kwargs)

    def _send_to(
        self, method: str, address: str, path: str, timeout: tuple[float, float], **kwargs: Any
    ) -> requests.Response:
        try:
            headers = {REQUEST_ID: log_context.request_id or new_request_id()}
            if tracing.traceparent is not None:
                headers[TRACEPARENT] = tracing.traceparent
            answer = self._session.request(method, address + path, timeout=timeout, headers=headers, **kwargs)
        except requests.ReadTimeout as error:
            raise AnswerLate(f"{address} does not answer in time") from error
        except requests.RequestException as error:
            raise ServiceUnreachable(f"{address} does not answer: {type(error).__name__}") from error
        if (others := answer.headers.get(SERVICES_HEADER)) is not None:
            self._addresses.announce(others.split())
        if answer.ok:
            return answer
        raise _refusal(answer)


def _with_retries(call: Callable[[], Answer]) -> Answer:
    """Repeat the call a few times if the service fails: only sometimes is the call itself the cause."""
    for delay in FAILURE_DELAYS:
        try:
            return call()
        except ServiceFailed as failed:
            logger.debug("trying again: %s", failed)
            time.sleep(delay)
    return call()


def _json_object(answer: requests.Response) -> dict[str, Any] | None:
    if answer.status_code == requests.codes.no_content or not answer.content:
        return None
    found = _json(answer)
    if found is None:
        detail = f"{redacted(answer.url)} does not answer with a JSON object"
        raise ServiceFailed(answer.status_code, "not-json", detail)
    return found


def _json(answer: requests.Response) -> dict[str, Any] | None:
    """The answer's JSON object, if it is one."""
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refusal(answer: requests.Response) -> Exception:
    status = answer.status_code
    if status in AWAY:
        away = ServiceDiskFull if status == requests.codes.insufficient_storage else ServiceUnreachable
        return away(f"{answer.url} answers {status}")
    problem = _json(answer) or {}
    is_too_large = status in TOO_LARGE and not (
        status == requests.codes.request_entity_too_large and _sent(answer) <= SMALL_BYTES
    )
    if status < requests.codes.server_error and not is_too_large and "type" not in problem:
        return ServiceUnreachable(f"{answer.url} answers {status}, but not in the form of the service's own errors")
    kind = str(problem.get("type", "about:blank")).removeprefix(PROBLEM_TYPES)
    detail = str(problem.get("detail") or problem.get("title") or answer.reason)
    if status >= requests.codes.server_error:
        return ServiceFailed(status, kind, detail)
    refused = CONFLICTS.get(kind, CallRefused) if status == requests.codes.conflict else CallRefused
    return refused(status, kind, detail, problem)


def _sent(answer: requests.Response) -> int:
    """The size of the request's body in bytes."""
    return len(answer.request.body or b"")


def backoff_delays() -> Iterator[float]:
    """The seconds to wait before each further try, without end: exponential backoff with jitter."""
    jitter = random.Random()  # noqa: S311 - no secret; user code seeds and uses the module's own generator
    delay = FIRST_DELAY_SECONDS
    while True:
        yield delay * jitter.uniform(0.5, 1.0)
        delay = min(2 * delay, MAX_DELAY_SECONDS)


def post_with_samples(post: Callable[[dict[str, Any]], Answer], body: dict[str, Any]) -> Answer:
    """Return `post(body)`. A service of an earlier version refuses samples, and then gets the call without them."""
    try:
        return post(body)
    except LeaseLost:
        raise
    except CallRefused as refused:
        if SYSTEM_METRICS not in body:
            raise
        logger.warning("the service refuses a call with samples of the nodes: %s", refused)
        return post({name: value for name, value in body.items() if name != SYSTEM_METRICS})


def post_until_answered(
    client: ServiceClient, path: str, body: dict[str, Any], cancelled: threading.Event
) -> dict[str, Any] | None:
    """`post`, repeated while the service is away.

    Raises LeaseLost and CallRefused immediately, and ServiceUnreachable once `cancelled` is set.
    """
    for delay in backoff_delays():
        try:
            return client.post(path, body)
        except ServiceUnreachable as error:
            if cancelled.wait(delay):
                raise
            logger.debug("trying %s again: %s", path, error)
    raise AssertionError("backoff_delays() never ends")


def download_package(client: ServiceClient, package_id: str, is_cancelled: Callable[[], bool]) -> Package:
    """The package. The call is repeated while the service is away.

    Raises CallRefused immediately, and ServiceUnreachable once `is_cancelled()`.
    """
    for delay in backoff_delays():
        try:
            return client.package(package_id)
        except ServiceUnreachable as error:
            if is_cancelled():
                raise
            logger.debug("asking for package %s again: %s", package_id, error)
            time.sleep(min(delay, CANCEL_CHECK_SECONDS))
    raise AssertionError("backoff_delays() never ends")
