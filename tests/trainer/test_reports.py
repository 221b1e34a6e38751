"""Reports on a real Ray that Ray Train alone cannot handle, or that the training function does not obey."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fake_service import FakeService
from trainer.wire import Answer, Decision, FailureKind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CODE = Path(__file__).parent / "user_code" / "reports.py"


def add(service: FakeService, function: str, config: dict[str, Any], **trainer: Any) -> str:
    """Queue a trial of two workers; returns its id."""
    package = service.add_package(CODE.read_text())
    spec = {"entrypoint": f"train:{function}", "package": package, "scaling": {"num_workers": 2}} | trainer
    return service.add_trial(spec, config)


@pytest.mark.parametrize("then", ["returns", "fails"])
def test_a_function_that_catches_its_stop_has_stopped_at_that_report(
    service: FakeService, record: Path, then: str
) -> None:
    trial = add(service, "catch_everything", {"then": then, "record": str(record)})
    stop = Answer(decision=Decision.STOP, reason="cannot hold the pace")
    service.decide = lambda of, report: stop if (of, report.sequence) == (trial, 1) else Answer()
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert record.read_text().startswith("caught 2\n")
    assert [report.metrics for report in service.reports[trial]][:2] == [{"epoch": 1}, {"epoch": 2}]
    assert "must raise it again" in service.log(trial)


@pytest.mark.parametrize("catches", ["exceptions", "everything"])
def test_a_function_that_catches_the_error_of_a_report_and_reports_again_fails_with_that_error(
    service: FakeService, catches: str
) -> None:
    """Ray would wait without end in the next report: it has counted the failed one."""
    trial = add(service, "save_without_room_and_go_on", {"catches": catches})
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.LOST
    assert "No space left on device" in error.message
    assert [report.metrics for report in service.reports[trial]] == [{"epoch": 1}]


def test_an_upload_in_the_background_ends_before_the_process_is_reset(service: FakeService, record: Path) -> None:
    records = [str(record), f"{record}.next"]
    functions = ["save_the_last_in_the_background", "say_process"]
    scaling = {"num_workers": 1}
    trials = [
        add(service, function, {"record": one}, scaling=scaling)
        for function, one in zip(functions, records, strict=True)
    ]
    ends = [service.finished(trial) for trial in trials]
    assert [end.outcome for end in ends] == [Outcome.COMPLETED] * 2
    environment, has_module, process = Path(records[0]).read_text().split()
    assert (environment, has_module) == ("yes", "True")
    assert Path(records[1]).read_text() == process
    assert ends[0].phases is not None
    assert ends[0].phases.checkpointing > 1


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_metrics_of_numpy_and_torch_are_reported_beside_checkpoints(service: FakeService, reuse_workers: bool) -> None:
    """Ray Train cannot write them to the snapshot that it makes of each checkpoint."""
    trial = add(service, "save_with_values_of_numpy_and_torch", {}, reuse_workers=reuse_workers)
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    metrics = {"epoch": 1, "loss": 0.5, "nan": "NaN", "tensor": 2.0}
    assert [report.metrics for report in service.reports[trial]] == [metrics] * 2
    log = service.log(trial)
    assert log.count("metric 'array' is of type ndarray, neither one number nor text, and is left out") == 1
    assert log.count("metric 'tensors' is of type Tensor, neither one number nor text, and is left out") == 1
