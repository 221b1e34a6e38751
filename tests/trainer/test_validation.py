"""Checkpoints that the training function reports with `validation`, on a real Ray, warm and with new workers."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.processes import kill_all
from tests.trainer.conftest import failure_in_new_processes, pid_of, slot_of, until
from tests.trainer.fake_service import FakeService
from trainer.resources import Bundle
from trainer.wire import Answer, Decision, FailureKind, Finish, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]

USER_CODE = Path(__file__).parent / "user_code" / "validated.py"

AddValidated = Callable[..., str]


@pytest.fixture
def add_validated(service: FakeService, record: Path) -> AddValidated:
    """Queue a trial of `user_code/validated.py` with two workers; `validation` has more fields of its field."""
    package = service.add_package(USER_CODE.read_text(), "validated.py")

    def add(
        config: dict[str, Any] | None = None,
        *,
        function: str = "train_fn",
        validation: dict[str, Any] | None = None,
        trainer: dict[str, Any] | None = None,
        **fields: Any,
    ) -> str:
        config = {"record": str(record), "steps": 2, **(config or {})}
        spec: dict[str, Any] = {
            "entrypoint": f"validated:{function}",
            "package": package,
            "scaling": {"num_workers": 2},
            "validation": {"entrypoint": "validated:validate", "fn_kwargs": {"config": config}, **(validation or {})},
        }
        return service.add_trial(spec | (trainer or {}), config, **fields)

    return add


def accuracies(service: FakeService, trial: str) -> list[tuple[int, Any]]:
    """Epoch and validated accuracy of each report, without repeats."""
    found = {report.sequence: report.metrics for report in service.reports[trial]}
    return [(metrics["epoch"], metrics.get("accuracy")) for _, metrics in sorted(found.items())]


def trial_in_validation(add_validated: AddValidated, record: Path, folder: Path) -> tuple[Path, str]:
    """A trial whose validation runs, until there is a file `1` in the directory that is returned before it."""
    gates = folder / "gates"
    gates.mkdir()
    trial = add_validated({"steps": 1, "gates": str(gates)})
    until(lambda: record.exists() and "validates" in record.read_text(), "the validation runs")
    return gates, trial


def completed(service: FakeService, trial: str) -> Finish:
    finish = service.finished(trial)
    assert finish.outcome == Outcome.COMPLETED, finish.error
    return finish


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_report_arrives_once_with_the_metrics_of_its_validation(
    service: FakeService, add_validated: AddValidated, record: Path, reuse_workers: bool
) -> None:
    trainer = {"reuse_workers": reuse_workers}
    trial = add_validated({"lists": True}, trainer=trainer, experiment=f"x-validated-{reuse_workers}")
    again = add_validated({"async": True, "factor": True}, trainer=trainer, experiment=f"x-validated-{reuse_workers}")
    completed(service, trial)
    assert [(report.sequence, report.metrics["loss"]) for report in service.reports[trial]] == [(0, 1.0), (1, 0.5)]
    assert accuracies(service, trial) == [(1, 10), (2, 20)]
    assert all(report.checkpoint for report in service.reports[trial])
    written = record.read_text().splitlines()
    assert [line for line in written if line.startswith("reported")] == [
        "reported VALIDATED ['accuracy', 'epoch', 'loss', 'said']"
    ] * 4
    completed(service, again)
    assert accuracies(service, again) == [(1, 100), (2, 200)]
    validations = [line.split() for line in record.read_text().splitlines() if line.startswith("validates")]
    assert [line[1] for line in validations] == ["1", "2", "1", "2"]
    assert len({line[3] for line in validations}) == 4  # a process each, with nothing of ours in it
    assert {len(line) for line in validations} == {4}


def test_training_goes_on_beside_a_validation_and_a_late_stop_voids_the_rest(
    service: FakeService, add_validated: AddValidated, record: Path, tmp_path: Path
) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    cut = Answer(decision=Decision.STOP, reason="cannot hold the pace", deciding_sequence=0)
    trial = add_validated({"steps": 3, "gates": str(gates)})  # the validation of step 2 ends with the attempt
    service.decide = lambda of, _report: cut if of == trial else Answer()
    until(lambda: record.exists() and "step 3" in record.read_text(), "the training function has reported thrice")
    assert service.reports[trial] == []
    (gates / "1").touch()
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert accuracies(service, trial) == [(1, 10), (2, None), (3, None)]


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_validation_that_fails_costs_its_metrics_and_one_that_always_fails_the_trial(
    service: FakeService,
    add_validated: AddValidated,
    monkeypatch: pytest.MonkeyPatch,
    reuse_workers: bool,
) -> None:
    value = "a-secret-of-validation"
    monkeypatch.setenv("AGENT_KEY", value)
    trainer = {"reuse_workers": reuse_workers, "secrets": {"W_KEY": {"from_agent_env": "AGENT_KEY"}}}
    trials = [
        add_validated(config, trainer=trainer, validation=validation, experiment=f"x-failing-{reuse_workers}")
        for config, validation in [
            ({"fails": True}, {}),
            ({"ends": "kill", "steps": 1}, {"ray_remote_kwargs": {"max_retries": 0}}),
            ({"gates": "/nowhere", "steps": 1}, {"timeout_s": 1}),
            ({"vanishes": True, "steps": 1}, {}),
            ({}, {}),
        ]
    ]
    errors = [service.finished(trial).error for trial in trials[:4]]
    assert [error.kind for error in errors if error] == [
        FailureKind.USER_ERROR,
        FailureKind.LOST,
        FailureKind.USER_ERROR,
        FailureKind.LOST,
    ]
    first, second, third, fourth = (str(error) for error in errors)
    assert "ValueError: step 1 cannot be validated with *** (validation function validated:validate, validated" in first
    assert "process has died" in second
    assert "took longer than its timeout_s (1 s)" in third
    assert "NotThere: the checkpoint /" in fourth
    assert "is not on the storage" in fourth
    assert not any(error.is_checkpoint_missing for error in errors if error), "they have resumed from none"
    assert accuracies(service, trials[0]) == [(1, None), (2, None)]
    completed(service, trials[4])
    assert {report.metrics["said"] for report in service.reports[trials[4]]} == {"the key is ***"}
    log = service.log(trials[4], rank=2)
    assert [line for line in log.splitlines() if "validating" in line] == [f"validating {n} with ***" for n in (1, 2)]
    assert "Traceback" in service.log(trials[0], rank=2)
    assert value not in str(service.logs) + str(service.finishes)


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (
            "exit",
            r"RuntimeError: os\._exit\(3\) was called; return, or raise .* \(validation function validated:validate",
        ),
        (
            "crash",
            r"the process of the validation function validated:validate crashed with SIGSEGV \(validated\.py:\d+\)",
        ),
    ],
)
def test_a_validation_that_ends_its_process_is_the_users_error(
    service: FakeService, add_validated: AddValidated, end: str, says: str
) -> None:
    once = {"ray_remote_kwargs": {"max_retries": 1}}
    error = service.finished(add_validated({"ends": end, "steps": 1}, validation=once)).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert re.match(says, error.message)
    assert "validated.py" in (error.traceback or "")


def test_the_log_has_the_output_of_a_validation_that_ray_starts_again(
    service: FakeService, add_validated: AddValidated, record: Path, tmp_path: Path
) -> None:
    gates, trial = trial_in_validation(add_validated, record, tmp_path)
    service.wait_for(lambda: "validating" in service.log(trial, rank=2), what="the output of the first process")
    kill_all([int(record.read_text().split()[-1])])
    until(lambda: record.read_text().count("validates") == 2, "the second process validates")
    (gates / "1").touch()
    completed(service, trial)
    assert service.log(trial, rank=2) == "validating 1 with None\n" * 2


def test_a_slot_that_is_killed_takes_its_validation_with_it_and_the_retry_validates(
    service: FakeService, add_validated: AddValidated, record: Path, tmp_path: Path
) -> None:
    gates, trial = trial_in_validation(add_validated, record, tmp_path)
    kill_all([pid_of(slot_of(trial))])
    service.wait_for(lambda: trial in service.lost)
    assert service.reports[trial] == []
    validating = int(record.read_text().split()[-1])
    until(lambda: not Path(f"/proc/{validating}").exists(), "its process ends with the slot")
    (gates / "1").touch()
    retry = add_validated({"steps": 1, "gates": str(gates)})
    completed(service, retry)
    assert accuracies(service, retry) == [(1, 10)]


def test_a_validation_has_no_room_where_workers_hold_the_rest(
    service: FakeService, add_validated: AddValidated, record: Path, tmp_path: Path
) -> None:
    from trainer.agent.cluster import total_resources  # noqa: PLC0415 - heavy
    from trainer.slot.checkpoints.validation_task import RayTask  # noqa: PLC0415 - heavy

    gates, trial = trial_in_validation(add_validated, record, tmp_path)
    (node,) = total_resources().values()
    assert RayTask(None, Bundle({"memory": 1.0}, {}), "").why_no_room() is None
    too_much = RayTask(None, Bundle({"CPU": node["CPU"]}, {}), "").why_no_room()
    assert f"reserves {node['CPU']:g} CPU by trainer.validation.ray_remote_kwargs" in str(too_much)
    assert RayTask(None, Bundle({}, {"zone": "none"}), "").why_no_room() is not None
    (gates / "1").touch()
    completed(service, trial)


def test_a_kill_ends_the_validation_and_the_report_counts_without_it(
    service: FakeService, add_validated: AddValidated, record: Path
) -> None:
    trial = add_validated({"steps": 1, "gates": "/nowhere"})
    until(lambda: record.exists() and "validates" in record.read_text(), "the validation runs")
    service.orders[trial] = Answer(decision=Decision.KILL)
    assert service.finished(trial).outcome == Outcome.STOPPED
    assert accuracies(service, trial) == [(1, None)]
    validating = int(record.read_text().split()[-1])
    until(lambda: not Path(f"/proc/{validating}").exists(), "its process has ended")


def test_a_report_that_asks_in_vain_says_what_to_add(service: FakeService, add_validated: AddValidated) -> None:
    in_vain = partial(add_validated, function="ask_in_vain", trainer={"validation": None})
    _, error = failure_in_new_processes(service, in_vain)
    assert error.kind == FailureKind.USER_ERROR
    assert "add trainer.validation: {entrypoint: module:function}" in error.message
