"""The heartbeat of an attempt. Needs no Ray."""

import json
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.timeouts import wait_until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from tests.trainer.service_listener import listener
from trainer.client.answers import PROBLEM_TYPES
from trainer.client.attempt_messages import Progress
from trainer.client.heartbeat import HeartbeatThread
from trainer.client.http import ServiceClient
from trainer.client.listener import ServiceListener
from trainer.wire import Answer, Decision, Finish

pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeService]:
    with FakeService(str(tmp_path)).serving() as service:
        yield service


def recording(said: "queue.Queue[Any]") -> ServiceListener:
    return listener(on_order=lambda *order: said.put(order), on_lease_lost=lambda: said.put("lost"))


@contextmanager
def beating(service: FakeService, trial: str, lease_seconds: float = 30) -> Iterator["queue.Queue[Any]"]:
    """The heartbeat's callbacks, in the order of their calls."""
    said: queue.Queue[Any] = queue.Queue()
    calls = ServiceClient(service.url, f"lease-{trial}")
    heartbeat = HeartbeatThread(calls, trial, lease_seconds, recording(said))
    heartbeat.start()
    service.wait_for(lambda: service.heartbeats[trial] or service.away)
    yield said
    heartbeat.close()
    service.lose(trial)
    heartbeat.join(PATIENCE_SECONDS)
    assert not heartbeat.is_alive()


def test_an_order_answers_a_waiting_heartbeat_and_so_does_the_next_one(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    with beating(service, trial) as said:
        service.order(trial, Decision.STOP, "the user")
        assert said.get(timeout=PATIENCE_SECONDS) == ("stop", "the user")
        service.order(trial, Decision.KILL)
        while (heard := said.get(timeout=PATIENCE_SECONDS)) == ("stop", "the user"):
            pass  # the heartbeat goes on
        assert heard == ("kill", None)


def test_what_a_heartbeat_tells_is_confirmed_once_the_service_has_taken_it(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"}, lease_seconds=0.3)
    told: queue.Queue[Progress] = queue.Queue()
    confirmed: queue.Queue[Progress] = queue.Queue()

    def progress() -> Progress:
        told.put(progress := Progress(running_seconds=float(told.qsize())))
        return progress

    service.away = True
    calls = ServiceClient(service.url, f"lease-{trial}")
    heartbeat = HeartbeatThread(calls, trial, 0.3, listener(on_progress_known=confirmed.put), progress)
    heartbeat.start()
    assert [told.get(timeout=PATIENCE_SECONDS) for _ in range(2)]
    assert confirmed.empty()
    service.away = False
    assert confirmed.get(timeout=PATIENCE_SECONDS)
    heartbeat.close()
    service.lose(trial)
    heartbeat.join(PATIENCE_SECONDS)


def test_a_service_that_does_not_know_of_ending_attempts_keeps_their_leases(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as an older one after a rollback."""
    trial = service.add_trial({"entrypoint": "train:train_fn"}, lease_seconds=0.3)
    service.unknown_fields = {"heartbeat": "is_ending"}
    calls = ServiceClient(service.url, f"lease-{trial}")
    heartbeat = HeartbeatThread(calls, trial, 0.3, listener(), lambda: Progress(is_ending=True))
    heartbeat.start()
    service.wait_for(lambda: service.heartbeats[trial] > 1)
    heartbeat.close()
    service.lose(trial)
    heartbeat.join(PATIENCE_SECONDS)
    assert not any(service.endings[trial])
    assert "without is_ending" in caplog.text


def test_an_order_that_cannot_be_followed_does_not_end_the_heartbeats(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"}, lease_seconds=0.3)
    heard: queue.Queue[str] = queue.Queue()

    def fails_once(decision: str, _reason: str | None) -> None:
        heard.put(decision)
        if heard.qsize() == 1:
            raise RuntimeError("Ray does not answer")

    heartbeat = HeartbeatThread(ServiceClient(service.url, f"lease-{trial}"), trial, 0.3, listener(on_order=fails_once))
    heartbeat.start()
    service.order(trial, Decision.KILL)
    wait_until(lambda: heard.qsize() > 1)
    heartbeat.close()
    heartbeat.join(PATIENCE_SECONDS)


def test_a_lost_lease_answers_a_waiting_heartbeat_and_is_reported_once(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    with beating(service, trial) as said:
        service.lose(trial)
        assert said.get(timeout=PATIENCE_SECONDS) == "lost"
    assert said.empty()


@pytest.mark.parametrize(("status", "kind"), [(404, "not-found"), (401, "unauthorized")])
def test_the_lease_of_a_deleted_trial_is_lost(service: FakeService, status: int, kind: str) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"}, lease_seconds=0.3)
    problem = {"type": f"{PROBLEM_TYPES}{kind}", "title": "No", "status": status, "detail": "no such trial"}
    with beating(service, trial, lease_seconds=0.3) as said:
        service.failing = status, json.dumps(problem | {"trial": trial}).encode()
        assert said.get(timeout=PATIENCE_SECONDS) == "lost"
        service.failing = None
    assert said.empty()


OF_A_WRONG_PATH = b'{"type": "urn:paceline:error:not-found", "title": "No", "status": 404, "detail": "no such path"}'


@pytest.mark.parametrize(
    ("status", "body"), [(401, b"<html>no</html>"), (404, b"<html>no</html>"), (404, OF_A_WRONG_PATH)]
)
def test_an_answer_that_names_no_trial_loses_no_lease(service: FakeService, status: int, body: bytes) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"}, lease_seconds=0.3)
    with beating(service, trial, lease_seconds=0.3) as said:
        service.failing = status, body
        made = len(service.request_ids)
        wait_until(lambda: len(service.request_ids) > made + 1)
        service.failing = None
        service.order(trial, Decision.KILL)
        assert said.get(timeout=PATIENCE_SECONDS) == ("kill", None)


def test_the_heartbeat_of_a_finished_attempt_reports_nothing(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    service.assign(trial)
    said: queue.Queue[Any] = queue.Queue()
    heartbeat = HeartbeatThread(ServiceClient(service.url, f"lease-{trial}"), trial, 30, recording(said))
    heartbeat.start()
    service.wait_for(lambda: service.heartbeats[trial])
    heartbeat.close()
    service.finish(trial, Finish(outcome="completed").model_dump_json().encode())
    heartbeat.join(PATIENCE_SECONDS)
    assert not heartbeat.is_alive()
    assert said.empty()


def test_the_heartbeat_continues_after_an_outage(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    service.away = True
    with beating(service, trial) as said:
        service.order(trial, Decision.KILL)
        service.away = False
        assert said.get(timeout=PATIENCE_SECONDS) == ("kill", None)


def test_the_heartbeat_pauses_if_the_service_answers_immediately(tmp_path: Path) -> None:
    times: list[float] = []

    class Hasty(FakeService):
        def heartbeat(self, trial: str, _body: bytes) -> Answer:
            with self._changed:
                times.append(time.monotonic())
                self.heartbeats[trial] += 1
                self._changed.notify_all()
            return Answer()

    with Hasty(str(tmp_path)).serving() as service:
        trial = service.add_trial({"entrypoint": "train:train_fn"})
        began = time.monotonic()
        with beating(service, trial, lease_seconds=1.5):
            service.wait_for(lambda: service.heartbeats[trial] >= 3)
    assert times[2] - began > 0.9  # the third call comes two thirds of a lease after the first one, or later
