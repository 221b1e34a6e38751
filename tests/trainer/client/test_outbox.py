"""Reports and logs on their way to a service that fails, refuses or is away. Needs no Ray."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import set_constant
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from tests.trainer.service_listener import listener, nothing
from trainer.client.errors import CallRefused, ServiceFailed, ServiceUnreachable
from trainer.client.http import ServiceClient
from trainer.client.log_outbox import LogOutbox
from trainer.client.outbox import REPORTS_PER_CALL, ReportOutbox, SavedCheckpoint
from trainer.slot.attempt.failure_classification import undelivered
from trainer.worker.failures import USER_ERROR


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    set_constant(monkeypatch, ServiceClient.post, "FAILURE_DELAYS", (0.0, 0.0))
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@pytest.fixture
def trial(service: FakeService) -> str:
    return service.add_trial({"entrypoint": "train:train_fn"})


def report_outbox(service: FakeService, trial: str, **listening: Callable[..., Any]) -> ReportOutbox:
    return ReportOutbox(ServiceClient(service.url, f"lease-{trial}"), trial, listener(**listening))


FAILED = 500, b'{"type": "urn:paceline:error:internal-error", "title": "Error", "status": 500}'


def test_a_call_at_which_the_service_fails_is_repeated_a_few_times_only(service: FakeService) -> None:
    service.failing = FAILED
    with pytest.raises(ServiceFailed, match="500"):
        ServiceClient(service.url, "token").post("/v1/trials/t-1/reports", {})
    assert len(service.request_ids) == 3


def test_an_unreachable_service_can_be_called_again(service: FakeService) -> None:
    service.away = True
    with pytest.raises(ServiceUnreachable, match="503"):
        ServiceClient(service.url, "token").post("/v1/trials/t-1/reports", {})


@pytest.mark.parametrize(("size", "error"), [(10, ServiceUnreachable), (100_000, CallRefused)])
def test_a_proxy_that_refuses_a_small_call_as_too_large_is_out_of_order(
    service: FakeService, size: int, error: type[Exception]
) -> None:
    service.failing = (413, b"<html>")
    with pytest.raises(error, match="413"):
        ServiceClient(service.url, "token").post("/v1/trials/t-1/reports", {"text": "x" * size})


def test_reports_at_which_the_service_fails_are_dropped_and_reported(service: FakeService, trial: str) -> None:
    service.failing = FAILED
    refused: list[Exception] = []
    outbox = report_outbox(service, trial, on_report_lost=refused.append)
    outbox.put(0, {"loss": 1}, None)
    outbox.put(1, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert [type(error) for error in refused] == [ServiceFailed]
    outbox.close()
    outbox.join()


def test_after_reports_at_which_the_service_failed_no_later_one_is_sent(service: FakeService, trial: str) -> None:
    """The next attempt would begin at a later checkpoint, and its trial would never report what is missing."""

    def recover(_error: Exception) -> None:
        service.failing = None

    service.failing = FAILED
    outbox = report_outbox(service, trial, on_report_lost=recover)
    for sequence in range(REPORTS_PER_CALL + 1):
        outbox.put(sequence, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    outbox.put(REPORTS_PER_CALL + 1, {"loss": 1}, SavedCheckpoint("s3://c", 7))
    outbox.add_checkpoint(REPORTS_PER_CALL, SavedCheckpoint("s3://b", 7))
    assert outbox.flush(PATIENCE_SECONDS)
    assert service.failing is None
    assert not service.reports[trial]
    outbox.close()
    outbox.join()


def test_reports_that_are_refused_together_are_tried_one_by_one(service: FakeService, trial: str) -> None:
    service.refused[trial] = "no"
    refused: list[Exception] = []
    outbox = report_outbox(service, trial, on_report_lost=refused.append)
    outbox.put(0, {"loss": 1}, None)
    outbox.put(1, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert [type(error) for error in refused] == [CallRefused, CallRefused]
    outbox.close()
    outbox.join()


def test_a_report_that_cannot_be_sent_as_json_is_refused_and_keeps_no_other(service: FakeService, trial: str) -> None:
    refused: list[Exception] = []
    outbox = report_outbox(service, trial, on_report_lost=refused.append)
    outbox.put(0, {"loss": math.nan}, None)
    outbox.put(1, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    outbox.close()
    outbox.join()
    assert [report.sequence for report in service.reports[trial]] == [1]
    [error] = refused
    failure = undelivered(error)
    assert (failure.kind, failure.is_refusal) == (USER_ERROR, True)
    assert failure.message.startswith("the service refused a report: it is no JSON: ")


def test_of_reports_that_are_tried_one_by_one_none_follows_one_that_is_lost(
    monkeypatch: pytest.MonkeyPatch, service: FakeService, trial: str
) -> None:
    tried: list[list[int]] = []

    def post(_path: str, body: dict[str, Any]) -> dict[str, Any]:
        sequences = [report["sequence"] for report in body["reports"]]
        tried.append(sequences)
        if len(sequences) > 1:
            raise CallRefused(422, "invalid", "no", {})
        if sequences == [1]:
            raise ServiceFailed(500, "internal-error", "no")
        return {"decision": "continue", "reason": None}

    outbox = report_outbox(service, trial)
    monkeypatch.setattr(outbox._client, "post", post)
    for sequence in range(4):
        outbox.put(sequence, {"loss": 1}, SavedCheckpoint("s3://c", 7))
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert tried == [[0, 1, 2, 3], [0], [1]]
    outbox.close()
    outbox.join()


def test_an_unexpected_error_ends_the_delivery_and_is_reported(service: FakeService, trial: str) -> None:
    def deaf(_answered: object) -> None:
        raise RuntimeError("the loop is closed")

    refused: list[Exception] = []
    outbox = report_outbox(service, trial, on_report_answered=deaf, on_report_lost=refused.append)
    outbox.put(0, {"loss": 1}, None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    outbox.join()
    assert [str(error) for error in refused] == ["the loop is closed"]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_checkpoint_that_is_saved_before_or_after_its_report_comes_is_sent_with_it(
    service: FakeService, trial: str, is_early: bool
) -> None:
    outbox = report_outbox(service, trial)
    saved = SavedCheckpoint("s3://c", 7)
    if is_early:
        outbox.add_checkpoint(0, saved)
    outbox.put(0, {"loss": 1}, None)
    if not is_early:
        outbox.add_checkpoint(0, saved)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    newest = service.reports[trial][-1]
    assert (newest.metrics, newest.checkpoint, newest.checkpoint_bytes) == ({"loss": 1}, "s3://c", 7)
    outbox.close()
    outbox.join()


def test_metrics_are_kept_only_for_the_reports_whose_checkpoint_may_still_come(
    service: FakeService, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, ReportOutbox._append, "REMEMBERED", 2)
    outbox = report_outbox(service, trial)
    for sequence in range(5):
        outbox.put(sequence, {"loss": sequence}, SavedCheckpoint("s3://c") if sequence == 4 else None)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert outbox._without_checkpoint == {3: {"loss": 3}}
    outbox.close()
    outbox.join()


def test_nothing_follows_a_held_report_that_was_dropped(service: FakeService, trial: str) -> None:
    """The next attempt begins before it. Its workers have reported and saved more meanwhile."""
    outbox = report_outbox(service, trial)
    outbox.put(0, {"loss": 0}, None)
    outbox.put(1, {"loss": 1}, SavedCheckpoint("s3://1"), is_held=True)
    outbox.put(2, {"loss": 2}, None)
    outbox.drop_held()
    outbox.release(1, {"accuracy": 1})
    outbox.put(3, {"loss": 3}, SavedCheckpoint("s3://3"))
    outbox.add_checkpoint(2, SavedCheckpoint("s3://2"))
    outbox.add_checkpoint(0, SavedCheckpoint("s3://0"))
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert [(one.sequence, one.checkpoint) for one in service.reports[trial]] == [(0, None), (0, "s3://0")]
    outbox.close()
    outbox.join()


def test_a_long_text_is_sent_in_pieces_that_the_wire_accepts(service: FakeService, trial: str) -> None:
    text = 1_500_000 * "\N{BULLET}"
    outbox = LogOutbox(ServiceClient(service.url, f"lease-{trial}"), trial, nothing)
    outbox.put(0, 0, text)
    outbox.start()
    assert outbox.flush(PATIENCE_SECONDS)
    assert service.log(trial) == text
    outbox.close()
    outbox.join()


def log_outbox(service: FakeService, trial: str) -> LogOutbox:
    return LogOutbox(ServiceClient(service.url, f"lease-{trial}"), trial, nothing)


def test_output_waits_for_a_service_that_is_away_however_much_it_is(service: FakeService, trial: str) -> None:
    outbox = log_outbox(service, trial)
    service.away = True
    outbox.start()
    for number in range(6):
        outbox.put(0, number * 1_000_000, 1_000_000 * "x")
    assert not outbox.has_room
    assert not outbox.flush(0.3)
    service.away = False
    assert outbox.flush(PATIENCE_SECONDS)
    assert len(service.log(trial)) == 6_000_000
    assert outbox.has_room
    outbox.close()
    outbox.join()


def test_output_is_dropped_for_a_service_without_room_and_the_log_says_so(
    service: FakeService, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constant(monkeypatch, LogOutbox._gives_up, "FULL_DISK_SECONDS", 0.2)
    outbox = log_outbox(service, trial)
    outbox.start()
    outbox.put(1, 0, "first")
    assert outbox.flush(PATIENCE_SECONDS)
    service.keeps_no_logs = True
    outbox.put(0, 0, 300_000 * "x")
    outbox.put(1, 5, "second")
    assert outbox.flush(PATIENCE_SECONDS)
    assert outbox.has_room
    service.keeps_no_logs = False
    outbox.close()
    outbox.mark_missing(ServiceClient(service.url, f"lease-{trial}"))
    assert (service.log(trial, 0), service.log(trial, 1)) == ("[missing up to 300000]", "first[missing up to 11]")
    outbox.join()


def test_the_end_of_each_ranks_log_is_noted_also_after_a_refusal(service: FakeService, trial: str) -> None:
    outbox = log_outbox(service, trial)
    outbox.put(0, 0, "first")
    outbox.put(1, 0, "second")
    client = ServiceClient(service.url, f"lease-{trial}")

    class RefusedOnce:
        def __init__(self) -> None:
            self.refused: list[int] = []

        def post(self, path: str, body: dict[str, Any], **options: Any) -> Any:
            if body["rank"] == 0:
                self.refused.append(0)
                raise CallRefused(422, "invalid", "no such rank")
            return client.post(path, body, **options)

    outbox.close()
    refusing: Any = RefusedOnce()
    outbox.mark_missing(refusing)
    assert (refusing.refused, service.log(trial, 1)) == ([0], "[missing up to 6]")
