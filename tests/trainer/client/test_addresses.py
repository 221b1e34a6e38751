"""Calls go to another address of the service when one refuses connections, is frozen, or answers that it is away."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.trainer.conftest import set_constant
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.client.addresses import ServiceAddresses
from trainer.client.errors import ServiceUnreachable
from trainer.client.http import ServiceClient
from trainer.wire import Answer

pytestmark = pytest.mark.slow

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeService]:
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@contextmanager
def frozen() -> Iterator[str]:
    """The address of a server that accepts connections, as the kernel does for a stopped process, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def refused() -> Iterator[str]:
    """An address that refuses connections. Nothing else can take it meanwhile."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


class Waits:
    """How long each call might have waited for its answer. Calls to `patient` URLs do wait longer.

    On a busy machine an answer is late that would come in time elsewhere.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patient: tuple[str, ...] = ()
        self._seconds: list[tuple[str, float]] = []
        self._send = requests.Session.request

        def request(session: requests.Session, *arguments: Any, **options: Any) -> Any:
            return self._request(session, *arguments, **options)

        patch.setattr(requests.Session, "request", request)

    def at(self, address: str) -> list[float]:
        return [seconds for url, seconds in self._seconds if url.startswith(address)]

    def _request(self, session: Any, method: str, url: str, timeout: tuple[float, float], **options: Any) -> Any:
        self._seconds.append((url, timeout[1]))
        used = (PATIENCE_SECONDS, PATIENCE_SECONDS) if url.startswith(self.patient) else timeout
        return self._send(session, method, url, timeout=used, **options)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


@pytest.mark.parametrize("how", ["refused", "frozen", "answers 503"])
def test_a_call_goes_to_the_next_address_within_a_second(
    service: FakeService, tmp_path: Path, how: str, waits: Waits
) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    with ExitStack() as stack:
        if how == "answers 503":
            other = stack.enter_context(FakeService(str(tmp_path)).serving())
            other.away, away = True, other.url
            waits.patient = (service.url, away)
        else:
            away = stack.enter_context(frozen() if how == "frozen" else refused())
            waits.patient = (service.url,)
        addresses = ServiceAddresses(f"{away}, {service.url}/")
        calls = ServiceClient(addresses, f"lease-{trial}")
        calls.post(f"/v1/trials/{trial}/reports", {"reports": [{"sequence": 0, "metrics": {}}]})
        assert 0 < sum(waits.at(away)) < 1
        assert addresses.current == service.url
        assert [report.sequence for report in service.reports[trial]] == [0]


def test_all_addresses_are_tried_before_a_call_fails_and_each_again_at_the_next_call() -> None:
    with refused() as first, refused() as second, frozen() as away:
        addresses = ServiceAddresses(f"{first},{second}")
        with pytest.raises(ServiceUnreachable, match="does not answer"):
            ServiceClient(addresses, None).get("/v1/agents/one/attempts")
        with pytest.raises(ServiceUnreachable, match=f"{away} does not answer in time"):
            ServiceClient(f"{first},{away}", None).get("/v1/agents/one/attempts")


def test_a_service_that_is_only_slow_at_one_call_is_not_left(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, waits: Waits
) -> None:
    """It answers another call meanwhile. The slow one is made again, and may take its time."""
    set_constant(monkeypatch, ServiceClient.post, "LATE_SECONDS", 0.2)
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    heartbeat, never = f"/v1/trials/{trial}/heartbeat", threading.Event()
    waits.patient = (f"{service.url}/healthz", service.url + heartbeat)

    def decide_late(*_: object) -> Answer:
        never.wait(0.5)
        return Answer()

    service.decide = decide_late
    with refused() as another:
        addresses = ServiceAddresses(f"{service.url},{another}")
        calls = ServiceClient(addresses, f"lease-{trial}")
        calls.post(f"/v1/trials/{trial}/reports", {"reports": [{"sequence": 0, "metrics": {}}]})
        assert addresses.current == service.url
        began = time.monotonic()
        calls.post(heartbeat, {"wait_seconds": 0.5})
        assert time.monotonic() - began > 0.5
        assert waits.at(service.url + heartbeat) == [0.7], "the service may hold the call"
        assert service.heartbeats[trial] == 1


def test_addresses_that_the_service_announces_come_after_those_that_were_given() -> None:
    addresses = ServiceAddresses(A)
    assert not addresses.has_others
    addresses.announce([B, A])
    assert str(addresses) == f"{A},{B}"
    addresses.leave(A)
    assert addresses.current == B
    addresses.leave(A)
    assert addresses.current == B, "another thread has left it already"
    addresses.announce([A])
    assert (addresses.all, addresses.current) == ([A], A)


def test_announced_addresses_that_may_be_another_service_or_are_not_encrypted_are_left_out() -> None:
    remote, encrypted = ServiceAddresses(A), ServiceAddresses("https://paceline.example")
    remote.announce(["http://127.0.0.1:8000", "http://localhost:8000", B])
    encrypted.announce([B, "https://other.example"])
    assert (remote.all, encrypted.all) == ([A, B], ["https://paceline.example", "https://other.example"])
    local = ServiceAddresses("http://127.0.0.1:8000")
    local.announce(["http://127.0.0.1:8001"])
    assert local.has_others


@pytest.mark.parametrize("how", ["refused", "answers 503"])
def test_a_password_in_an_address_is_in_no_message(service: FakeService, how: str) -> None:
    service.away = True
    with refused() as silent:
        address = silent if how == "refused" else service.url
        client = ServiceClient(address.replace("//", "//user:secret@"), None)
        with pytest.raises(ServiceUnreachable, match=address.removeprefix("http://")) as raised:
            client.get("/v1/agents/one/attempts")
    assert "secret" not in str(raised.value)
