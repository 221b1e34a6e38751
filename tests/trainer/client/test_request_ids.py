"""What a slot logs about a call has the id that the service logs for the same call, and names the attempt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process_log import Line, logged
from tests.timeouts import wait_until
from tests.trainer.conftest import set_constant
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from tests.trainer.service_listener import listener
from trainer.client.heartbeat import HeartbeatThread
from trainer.client.http import ServiceClient
from trainer.client.outbox import ReportOutbox
from trainer.process_log.context import log_context

ABOUT = {"trial": "t-1", "attempt": 3}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    set_constant(monkeypatch, ServiceClient.post, "FAILURE_DELAYS", (0.0, 0.0))
    with FakeService(str(tmp_path)).serving() as service:
        yield service


def about(line: Line) -> dict[str, Any]:
    return {name: line.get(name) for name in ABOUT}


def report_outbox(client: ServiceClient) -> ReportOutbox:
    return ReportOutbox(client, "t-1", listener())


def test_a_refused_report_is_logged_with_the_id_of_its_call(service: FakeService) -> None:
    service.failing = (500, b'{"type": "urn:paceline:error:internal-error"}')
    with logged("paceline") as lines:
        with log_context.bound(**ABOUT):
            outbox = report_outbox(ServiceClient(service.url, "secret-lease-token"))
        outbox.put(0, {"loss": 1.0}, None)
        outbox.start()
        assert outbox.flush(PATIENCE_SECONDS)
        outbox.close()
        outbox.join()
    [error] = [line for line in lines if line["level"] == "ERROR"]
    assert about(error) == ABOUT
    assert len(service.request_ids) == 3
    assert {*service.request_ids} == {line["request"] for line in lines}
    assert "secret-lease-token" not in str(lines)


def test_a_missing_heartbeat_is_logged_with_the_id_of_its_call(service: FakeService) -> None:
    trial = service.add_trial({"entrypoint": "train:train_fn"})
    service.away = True
    with logged("paceline") as lines:
        with log_context.bound(**ABOUT):
            heartbeat = HeartbeatThread(ServiceClient(service.url, f"lease-{trial}"), trial, 30, listener())
        heartbeat.start()
        wait_until(lambda: len(service.request_ids) > 1)
        heartbeat.close()
        heartbeat.join(PATIENCE_SECONDS)
    warnings = [line for line in lines if line["level"] == "WARNING"]
    assert [about(line) for line in warnings] == [ABOUT] * len(warnings)
    assert [line["request"] for line in warnings[:2]] == service.request_ids[:2]
    assert service.request_ids[0] != service.request_ids[1]
