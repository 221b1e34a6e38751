"""HTTP calls to the service. They need only `requests`, which is installed wherever Ray is."""

import contextlib
import logging
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import requests

from trainer.client.addresses import ServiceAddresses
from trainer.client.answers import PROMISES, error_of, package_content, promised
from trainer.client.errors import (
    AnswerLate,
    CallRefused,
    DamagedPackage,
    ForeignAnswer,
    LeaseLost,
    ServiceFailed,
    ServiceUnreachable,
)
from trainer.client.session import service_session
from trainer.process_log.context import log_context, new_request_id
from trainer.process_log.foreign_answers import certificate_problem
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

PACKAGE_DOWNLOADS = 5
"""How often a package is downloaded if other bytes come each time."""

WARNING_SECONDS = 60.0
"""Between two warnings that calls get no answer of the service's own."""

SUCCESS = range(200, 300)

Answer = TypeVar("Answer")
Read = Callable[[requests.Response], Answer]


SYSTEM_METRICS = "system_metrics"
"""The field of heartbeats and ends that has the samples of the nodes."""

OPTIONAL_FIELDS = (SYSTEM_METRICS, "is_ending")
"""The fields of heartbeats and ends that are left out where a service of an earlier version refuses them."""


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
        self._session = service_session(self._addresses.certificates)
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    @property
    def has_alternatives(self) -> bool:
        """Whether it can go to another address when the service does not answer at one."""
        return self._addresses.has_others

    def post(self, path: str, body: dict[str, Any], *, read_seconds: float = READ_SECONDS) -> dict[str, Any] | None:
        """The answer's JSON, which has what the wire promises, or None for 204 where it may be.

        The service may hold the call for the `wait_seconds` of the body. Raises ServiceUnreachable, LeaseLost,
        ServiceFailed or CallRefused.
        """
        due = float(body.get("wait_seconds", 0)) + LATE_SECONDS
        read = _reader(path)
        with log_context.request():
            return _with_retries(lambda: self._send("POST", path, read, read_seconds, due, json=body))

    def get(self, path: str) -> dict[str, Any]:
        """Raises as `post`."""
        read = _reader(path)
        with log_context.request():
            return _with_retries(lambda: self._send("GET", path, read, READ_SECONDS)) or {}

    def package(self, package_id: str) -> Package:
        """Raises as `post`."""

        def read(answer: requests.Response) -> Package:
            named = re.search(r'filename="?([^";]+)"?', answer.headers.get("Content-Disposition", ""))
            return Package(package_content(answer, package_id), named.group(1) if named else "package.zip")

        with log_context.request():
            return _with_retries(lambda: self._send("GET", f"/v1/packages/{package_id}", read, READ_SECONDS))

    def _send(
        self,
        method: str,
        path: str,
        read: Read[Answer],
        read_seconds: float,
        due_seconds: float = LATE_SECONDS,
        **kwargs: Any,
    ) -> Answer:
        """Call each address until one answers, first the one that answered last."""
        if not self._addresses.has_others:
            return self._send_to(method, self._addresses.current, path, read, (CONNECT_SECONDS, read_seconds), **kwargs)
        failed: list[ServiceUnreachable] = []
        for _ in self._addresses.all:
            address = self._addresses.current
            try:
                return self._send_impatiently(method, address, path, read, (due_seconds, read_seconds), **kwargs)
            except ServiceUnreachable as error:
                failed.append(error)
                self._addresses.leave(address)
        raise failed[-1]

    def _send_impatiently(
        self, method: str, address: str, path: str, read: Read[Answer], due_and_read: tuple[float, float], **kwargs: Any
    ) -> Answer:
        """Wait longer than the call should take only if the service answers another call meanwhile."""
        due, longest = due_and_read
        try:
            return self._send_to(method, address, path, read, (LATE_SECONDS, min(due, longest)), **kwargs)
        except AnswerLate:
            with contextlib.suppress(CallRefused):
                self._send_to("GET", address, "/healthz", lambda _: None, (LATE_SECONDS, LATE_SECONDS))
            return self._send_to(method, address, path, read, (CONNECT_SECONDS, longest), **kwargs)

    def _send_to(
        self, method: str, address: str, path: str, read: Read[Answer], timeout: tuple[float, float], **kwargs: Any
    ) -> Answer:
        """A redirection is not followed: most turn a POST into a GET, and the next call would be redirected again.

        A body that is no JSON counts as refused, since it would never be sent.
        """
        try:
            headers = {REQUEST_ID: log_context.request_id or new_request_id()}
            if tracing.traceparent is not None:
                headers[TRACEPARENT] = tracing.traceparent
            answer = self._session.request(
                method, address + path, timeout=timeout, headers=headers, allow_redirects=False, **kwargs
            )
        except requests.ReadTimeout as error:
            raise AnswerLate(f"{address} does not answer in time") from error
        except requests.exceptions.SSLError as error:
            why = certificate_problem(address, error) or f"{address} cannot be called with TLS: {error}"
            raise ForeignAnswer(why) from error
        except requests.exceptions.InvalidJSONError as error:
            raise CallRefused(requests.codes.unprocessable, "invalid-json", f"it is no JSON: {error}") from error
        except requests.RequestException as error:
            raise ServiceUnreachable(f"{address} does not answer: {type(error).__name__}") from error
        if (others := answer.headers.get(SERVICES_HEADER)) is not None:
            self._addresses.announce(others.split())
        if answer.status_code in SUCCESS:
            return read(answer)
        raise error_of(answer)


def with_alternatives(client: ServiceClient) -> dict[str, bool]:
    """The field of `trainer.wire.Heartbeat`, if it says anything: a service of an earlier version would refuse it."""
    return {"has_alternatives": True} if client.has_alternatives else {}


def _reader(path: str) -> Read[dict[str, Any] | None]:
    promise = PROMISES[path.rpartition("/")[2]]
    return lambda answer: promised(answer, promise)


def _with_retries(call: Callable[[], Answer]) -> Answer:
    """Repeat the call a few times if the service fails: only sometimes is the call itself the cause."""
    for delay in FAILURE_DELAYS:
        try:
            return call()
        except ServiceFailed as failed:
            logger.debug("trying again: %s", failed)
            time.sleep(delay)
    return call()


def backoff_delays() -> Iterator[float]:
    """The seconds to wait before each further try, without end: exponential backoff with jitter."""
    jitter = random.Random()  # noqa: S311 - no secret; user code seeds and uses the module's own generator
    delay = FIRST_DELAY_SECONDS
    while True:
        yield delay * jitter.uniform(0.5, 1.0)
        delay = min(2 * delay, MAX_DELAY_SECONDS)


class RepetitionLog:
    """Logs why calls are repeated: a foreign answer as a warning, but not more than one a minute.

    An outage is logged by the heartbeats, and ends by itself.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def add(self, what: str, error: ServiceUnreachable) -> None:
        is_due = isinstance(error, ForeignAnswer) and time.monotonic() >= self._due
        if is_due:
            self._due = time.monotonic() + WARNING_SECONDS
        logger.log(logging.WARNING if is_due else logging.DEBUG, "%s: %s; trying again", what, error)


def post_with_optional(post: Callable[[dict[str, Any]], Answer], body: dict[str, Any]) -> Answer:
    """Return `post(body)`. If that is refused, the service gets the call without OPTIONAL_FIELDS."""
    try:
        return post(body)
    except LeaseLost:
        raise
    except CallRefused as refused:
        left_out = [name for name in OPTIONAL_FIELDS if name in body]
        if not left_out:
            raise
        logger.warning("the service refuses a call, which is made without %s: %s", " and ".join(left_out), refused)
        return post({name: value for name, value in body.items() if name not in left_out})


def download_package(client: ServiceClient, package_id: str, is_cancelled: Callable[[], bool]) -> Package:
    """The package. The call is repeated while the service is away.

    Raises CallRefused immediately, also for a package that has come damaged at each of a few downloads, and
    ServiceUnreachable once `is_cancelled()`.
    """
    repetitions, damaged_count = RepetitionLog(), 0
    for delay in backoff_delays():
        try:
            return client.package(package_id)
        except ServiceUnreachable as error:
            damaged_count += isinstance(error, DamagedPackage)
            if damaged_count == PACKAGE_DOWNLOADS:
                raise CallRefused(requests.codes.ok, "damaged-package", str(error)) from error
            if is_cancelled():
                raise
            repetitions.add(package_id, error)
            time.sleep(min(delay, CANCEL_CHECK_SECONDS))
    raise AssertionError("backoff_delays() never ends")
