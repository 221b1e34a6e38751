"""Reports and logs on their way to a service that fails, refuses or is away. Needs no Ray."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.fake_service import FakeService
from trainer.client import http
from trainer.client.http import CallRefused, ServiceClient, ServiceFailed, ServiceUnreachable
from trainer.client.outbox import LogOutbox, ReportOutbox

PATIENCE_SECONDS = 20


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    monkeypatch.setattr(http, "FAILURE_DELAYS", (0.0, 0.0))
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@pytest.fixture
def trial(service: FakeService) -> str:
    return service.add_trial({"entrypoint": "train:train_fn"})


def nothing(*_args: object) -> None:
    pass


FAILURES = pytest.mark.parametrize("failing", [(500, b"{}"), (501, b"oops"), (200, b"<html>"), (200, b"[]")])


@FAILURES
def test_a_call_at_which_the_service_fails_is_repeated_a_few_times_only(
    service: FakeService, failing: tuple[int, bytes]
) -> None:
    service.failing = failing
    with pytest.raises(ServiceFailed, match=str(failing[0])):
        ServiceClient(service.url, "token").post("/v1/trials/t-1/reports", {})


def test_an_unreachable_service_can_be_called_again(service: FakeService) -> None:
    service.away = True
    with pytest.raises(ServiceUnreachable, match="503"):
        ServiceClient(service.url, "token").post("/v1/trials/t-1/reports", {})


@FAILURES
def test_reports_at_which_the_service_fails_are_dropped_and_reported(
    service: FakeService, trial: str, failing: tuple[int, bytes]
) -> None:
    service.failing = failing
    refused: list[Exception] = []
    outbox = ReportOutbox(
        ServiceClient(service.url, f"lease-{trial}"), trial, nothing, nothing, refused.append, nothing
    )
    outbox.put(0, {"loss": 1}, None)
    outbox.put(1, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert [type(error) for error in refused] == [ServiceFailed]
    outbox.close()
    outbox.join()


def test_reports_that_are_refused_together_are_tried_one_by_one(service: FakeService, trial: str) -> None:
    service.refused[trial] = "no"
    refused: list[Exception] = []
    outbox = ReportOutbox(
        ServiceClient(service.url, f"lease-{trial}"), trial, nothing, nothing, refused.append, nothing
    )
    outbox.put(0, {"loss": 1}, None)
    outbox.put(1, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert [type(error) for error in refused] == [CallRefused, CallRefused]
    outbox.close()
    outbox.join()


def test_an_unexpected_error_ends_the_delivery_and_is_reported(service: FakeService, trial: str) -> None:
    def deaf(*_decision: object) -> None:
        raise RuntimeError("the loop is closed")

    refused: list[Exception] = []
    outbox = ReportOutbox(ServiceClient(service.url, f"lease-{trial}"), trial, deaf, nothing, refused.append, nothing)
    outbox.put(0, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    outbox.join()
    assert [str(error) for error in refused] == ["the loop is closed"]


def test_a_long_text_is_sent_in_pieces_that_the_wire_accepts(service: FakeService, trial: str) -> None:
    text = 1_500_000 * "\N{BULLET}"
    outbox = LogOutbox(ServiceClient(service.url, f"lease-{trial}"), trial, nothing)
    outbox.put(0, 0, text)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert service.log(trial) == text
    outbox.close()
    outbox.join()
