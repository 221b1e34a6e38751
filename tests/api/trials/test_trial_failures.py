"""Failures over HTTP: what is retried on which budget, and which failures end the experiment."""

from datetime import timedelta
from typing import Any

import pytest

from service.domain import retry_policy
from service.runtime.proposals import Proposals
from tests.conftest import Api

pytestmark = pytest.mark.slow

ADVICE = "Report the objective under its name, or submit with another name"


def test_a_trial_that_never_reported_the_objective_fails_as_silent(service: Api) -> None:
    held = service.ask(service.create()["name"])
    assert held
    held.report(acc=0.5)
    held.finish()
    shown = held.shown()
    assert (shown["status"], shown["failure_kind"]) == ("failed", "silent")
    assert shown["reason"] == f"ended without ever reporting 'accuracy'; it reported: acc. {ADVICE}"


@pytest.mark.parametrize(
    ("trainer", "hint"),
    [
        (
            {"kind": "torch", "entrypoint": "train:f"},
            ": report with ray.train.report(), not with tune.report() or print()",
        ),
        ({"kind": "external"}, ""),
    ],
)
def test_a_function_that_reported_nothing_gets_a_hint(service: Api, trainer: dict[str, Any], hint: str) -> None:
    held = service.ask(service.create(trainer=trainer)["name"])
    assert held
    held.finish()
    assert held.shown()["reason"] == f"ended without ever reporting 'accuracy'; it reported nothing{hint}"


def test_a_user_error_is_retried_only_on_the_users_budget(service: Api) -> None:
    name = service.create(failures={"max_retries": 1})["name"]
    held = service.ask(name)
    assert held
    held.fail()
    assert (held.shown()["status"], held.shown()["reason"]) == ("queued", "ValueError: no")
    again = service.ask(name)
    assert again
    assert (again.trial, again.assignment["attempt"]) == (held.trial, 2)
    again.fail(message="ValueError: no, again")
    shown = held.shown()
    assert (shown["status"], shown["reason"]) == ("failed", "ValueError: no, again")
    assert [attempt["error"]["message"] for attempt in shown["attempts"]] == ["ValueError: no", "ValueError: no, again"]


def test_a_lost_trial_resumes_from_its_newest_checkpoint_and_keeps_its_curve(service: Api) -> None:
    name = service.create()["name"]
    first = service.ask(name)
    assert first
    for value in (0.1, 0.2, 0.3):
        first.report(accuracy=value, checkpoint="/store/2" if value == 0.2 else None)
    first.fail("lost", "the node is gone")
    second = service.ask(name)
    assert second
    assert second.assignment["resume"] == {"uri": "/store/2", "step": 2}
    for value in (0.35, 0.4):
        second.report(accuracy=value)
    second.finish()
    reports = service.get(f"/v1/trials/{first.trial}/reports")["items"]
    assert [(one["step"], one["metrics"]["accuracy"]) for one in reports] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    steps = [event["data"]["step"] for event in service.events(name) if event["kind"] == "report"]
    assert steps == [1, 2, 3, 4]


def test_an_experiment_ends_when_its_first_trials_cannot_start_for_the_same_reason(service: Api) -> None:
    name = service.create()["name"]
    for _ in range(3):
        held = service.ask(name)
        assert held
        error = {"message": "ModuleNotFoundError: No module named 'torchvision'", "traceback": "Traceback: torchvision"}
        held.finish("failed", error={"kind": "cannot_start", **error})
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["end_reason"]) == ("failed", "cannot_start")
    assert experiment["end_detail"] == f"the first 3 trials could not start: {error['message']}"
    assert experiment["traceback"] == "Traceback: torchvision"


def test_trials_that_cannot_continue_after_their_first_report_end_the_experiment(service: Api) -> None:
    name = service.create(limits={"max_trials": 20, "parallelism": 1})["name"]
    for count in range(5):
        assert service.get(f"/v1/experiments/{name}")["status"] == "running", count
        held = service.ask(name)
        assert held
        held.report(accuracy=0.5)
        held.finish("failed", error={"kind": "cannot_start", "message": "PydanticSerializationError: float32"})
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["end_reason"]) == ("failed", "too_many_failures")


def test_later_equal_failures_do_not_end_an_experiment_with_successful_trials(service: Api) -> None:
    name = service.create(limits={"max_trials": 20, "parallelism": 10})["name"]
    good, *bad = [held for _ in range(8) if (held := service.ask(name))]
    good.report(accuracy=0.9)
    for held in bad:
        held.fail()
    assert service.get(f"/v1/experiments/{name}")["ending"] is False
    assert good.report(accuracy=0.95)["decision"] == "continue"


@pytest.mark.parametrize(("odd_one", "status"), [(None, "failed"), ("completed", "running"), ("tolerated", "running")])
def test_an_experiment_ends_when_its_first_trials_fail_in_the_same_way(
    service: Api, odd_one: str | None, status: str
) -> None:
    """Unless another trial was more successful, or the user set `max_failed_trials`."""
    bearing = {"max_failed_trials": 8} if odd_one == "tolerated" else {}
    name = service.create(failures=bearing, limits={"max_trials": 20, "parallelism": 1})["name"]
    for number in range(5):
        held = service.ask(name)
        assert held
        held.report(accuracy=number)
        if number == 0 and odd_one == "completed":
            held.finish()
        held = service.ask(name) if number == 0 and odd_one == "completed" else held
        assert held
        held.fail(message=f"ValueError: no such column (rank {number} of 8, train.py:12)")
    experiment = service.get(f"/v1/experiments/{name}")
    assert experiment["status"] == status
    if status == "failed":
        assert experiment["end_reason"] == "too_many_failures"
        assert "the first 5 trials failed in the same way: ValueError: no such column" in experiment["end_detail"]


@pytest.mark.parametrize(
    ("first", "status", "ending", "reason"),
    [
        ("waits", "running", True, "too_many_failures"),
        ("is stopped", "failed", False, "too_many_failures"),
        ("diverges", "failed", False, "too_many_failures"),
        ("is lost", "failed", False, "too_many_failures"),
        ("reports", "running", False, None),
    ],
)
def test_trials_that_fail_in_the_same_way_need_not_be_the_first(
    service: Api, monkeypatch: pytest.MonkeyPatch, first: str, status: str, reason: str | None, *, ending: bool
) -> None:
    monkeypatch.setattr(retry_policy, "MAX_LOSSES", 0)
    name = service.create(limits={"max_trials": 20, "parallelism": 2})["name"]
    odd_one = service.ask(name)
    assert odd_one
    match first:
        case "reports":
            odd_one.report(accuracy=0.5)
        case "is stopped":
            service.post(f"/v1/trials/{odd_one.trial}/stop")
            odd_one.finish("stopped")
        case "diverges":
            odd_one.finish("failed", error={"kind": "diverged", "message": "the loss is NaN"})
        case "is lost":
            odd_one.fail("lost", "the node is gone")
    for _ in range(5):
        held = service.ask(name)
        assert held
        held.fail(message="ValueError: no such column")
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["ending"], experiment["end_reason"]) == (status, ending, reason)


@pytest.mark.parametrize(
    ("how", "status"), [("never began", "failed"), ("began", "running"), ("another may have begun", "running")]
)
def test_an_experiment_ends_when_no_worker_of_its_first_trials_ever_ran(
    service: Api, monkeypatch: pytest.MonkeyPatch, how: str, status: str
) -> None:
    monkeypatch.setattr(retry_policy, "MAX_LOST_STARTS", 1)
    monkeypatch.setattr(retry_policy, "MAX_LOSSES", 1)
    monkeypatch.setattr(retry_policy, "MIN_LOST_START_INTERVAL", timedelta(0))
    name = service.create(limits={"max_trials": 20, "parallelism": 4})["name"]
    first = [held for _ in range(3) if (held := service.ask(name))]
    other = service.ask(name) if how == "another may have begun" else None
    for again in range(2):
        for number in range(3):
            held = first[number] if not again else service.ask(name)
            assert held
            error = {"kind": "lost", "message": f"Ray failed: process {again}{number}", "began": how == "began"}
            held.finish("failed", error=error)
    experiment = service.get(f"/v1/experiments/{name}")
    assert experiment["counts"]["failed"] == 3
    assert experiment["status"] == status
    if status == "failed":
        assert experiment["end_reason"] == "too_many_failures"
        assert "no worker of the first 3 trials ever ran" in experiment["end_detail"]
        assert "Ray failed: process 10. If" in experiment["end_detail"]
    if other:
        assert other.report(accuracy=0.5)["decision"] == "continue"


def test_too_many_failed_trials_end_the_experiment(service: Api) -> None:
    name = service.create(failures={"max_failed_trials": 1})["name"]
    for _ in range(2):
        held = service.ask(name)
        assert held
        held.fail()
    experiment = service.get(f"/v1/experiments/{name}")
    assert (experiment["status"], experiment["end_reason"]) == ("failed", "too_many_failures")


def test_a_trial_lost_after_the_space_was_exhausted_is_retried(service: Api) -> None:
    space = {"a": {"type": "categorical", "choices": ["x", "y"]}}
    name = service.create(space=space, search={"sampler": "grid"})["name"]
    first, second = service.ask(name), service.ask(name)
    assert first
    assert second
    assert service.ask(name) is None
    first.fail("lost", "the node is gone")
    again = service.ask(name)
    assert again
    assert again.trial == first.trial
    for held in (again, second):
        held.report(accuracy=0.5)
        held.finish()
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"]) == ("completed", "space_exhausted")


def test_a_search_that_fails_ends_its_experiment_and_no_other(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = {"kind": "torch", "entrypoint": "a_module:train_fn"}
    broken = service.create(priority=5, trainer=torch)
    healthy = service.create(trainer=torch)["name"]
    propose = Proposals.propose

    def fail_for_one(self: Proposals, experiment_id: str, number: int) -> Any:
        if experiment_id == broken["id"]:
            raise IndexError("a defect of the search")
        return propose(self, experiment_id, number)

    monkeypatch.setattr(Proposals, "propose", fail_for_one)
    held = service.claim()
    assert held
    assert held.assignment["experiment"] == healthy
    shown = service.get(f"/v1/experiments/{broken['name']}")
    assert (shown["status"], shown["end_reason"]) == ("failed", "search_failed")
    assert "a defect of the search" in shown["end_detail"]


def test_a_trial_whose_reports_had_no_metric_that_can_be_stored_says_so(service: Api) -> None:
    """Such as a tensor of two elements, which the worker leaves out."""
    held = service.ask(service.create(trainer={"kind": "torch", "entrypoint": "train:train_fn"})["name"])
    assert held
    held.report()
    held.finish("completed")
    reason = held.shown()["reason"]
    assert reason.startswith("ended without ever reporting 'accuracy'; its reports had no metrics that can be stored")
    assert reason.endswith(
        "the metrics of rank 0 count, without those that are neither one number nor text, which the trial's log names"
    )
