"""Changes of an experiment that has ended: some let it continue, some are possible without that, others are refused."""

import pytest

from tests.api.experiments.changed_experiments import asked, changes, patched, ran
from tests.conftest import Api

pytestmark = pytest.mark.slow


def test_an_exhausted_experiment_stays_so_and_names_the_alternative(service: Api) -> None:
    space = {"lr": {"type": "categorical", "choices": [0.1]}}
    name = service.create(space=space, search={"sampler": "brute_force"})["name"]
    held = asked(service, name)
    assert service.ask(name) is None
    held.report(accuracy=0.5)
    held.finish()
    problem = patched(service, name, 409, limits={"max_trials": 20})
    assert (problem["type"], problem["experiment_status"]) == ("urn:paceline:error:wrong-state", "completed")
    assert "warm_start" in problem["detail"]
    assert "warm_start" in service.post(f"/v1/experiments/{name}/resume", 409)["detail"]
    assert changes(service, name) == []
    patched(service, "nothing", 404, priority=1)


@pytest.mark.databases("sqlite", "postgresql")
def test_labels_can_be_changed_after_the_end(service: Api) -> None:
    name = service.create()["name"]
    service.post(f"/v1/experiments/{name}/stop")
    shown = patched(service, name, tags={"kept": "yes"}, priority=3)
    assert (shown["status"], shown["tags"], shown["priority"]) == ("stopped", {"kept": "yes"}, 3)


def test_raising_the_limit_that_ended_an_experiment_continues_it(service: Api) -> None:
    name = service.create(limits={"max_trials": 2})["name"]
    for value in (0.5, 0.6):
        ran(service, name, value)
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    problem = patched(service, name, 409, limits={"parallelism": 2})
    assert "would end again immediately: max_trials: all 2 trials have ended" in problem["detail"]
    shown = patched(service, name, limits={"max_trials": 3})
    assert (shown["status"], shown["end_reason"], shown["end_detail"], shown["ended_at"]) == ("running", *[None] * 3)
    event = service.events(name)[-1]
    assert (event["kind"], event["data"]["ended_by"]) == ("experiment.running", "max_trials")
    third = ran(service, name, 0.7)
    assert third.shown()["number"] == 2
    shown = service.get(f"/v1/experiments/{name}")
    assert (shown["status"], shown["end_reason"], shown["best"]["number"]) == ("completed", "max_trials", 2)


@pytest.mark.databases("sqlite", "postgresql")
def test_moving_each_kind_of_limit_reopens_the_experiment(service: Api) -> None:
    objective = {"metric": "accuracy", "direction": "maximize", "target": 0.9}
    name = service.create(objectives=[objective])["name"]
    held = asked(service, name)
    assert held.report(accuracy=0.95)["decision"] == "stop"
    held.finish("stopped")
    assert "would end again" in patched(service, name, 409, objectives=[objective | {"target": 0.92}])["detail"]
    assert patched(service, name, objectives=[objective | {"target": 0.99}])["status"] == "running"
    name = service.create(failures={"max_failed_trials": 0})["name"]
    held = asked(service, name)
    held.fail()
    assert service.get(f"/v1/experiments/{name}")["status"] == "failed"
    assert patched(service, name, failures={"max_failed_trials": 5})["status"] == "running"
    assert service.post(f"/v1/trials/{held.trial}/retry")["status"] == "queued"


@pytest.mark.parametrize("kind", ["user_error", "lost"])
def test_the_limit_to_change_is_named_when_all_trials_have_failed(service: Api, kind: str) -> None:
    """Whatever `failures.max_failed_trials` is, there is no further trial."""
    name = service.create(limits={"max_trials": 2}, failures={"max_failed_trials": 5})["name"]
    while service.get(f"/v1/experiments/{name}")["status"] == "running":
        held = asked(service, name)
        held.report(accuracy=0.1)
        held.fail(kind, "no room")
    problem = patched(service, name, 409, failures={"max_failed_trials": 9})
    assert "limits.max_trials is 2" in problem["detail"]
    assert problem["detail"].endswith("; to continue it, set limits.max_trials to at least 3")
    assert patched(service, name, limits={"max_trials": 3})["status"] == "running"


def test_both_limits_are_named_when_one_alone_does_not_help(service: Api) -> None:
    name = service.create(limits={"max_trials": 1}, failures={"max_failed_trials": 0})["name"]
    asked(service, name).fail()
    problem = patched(service, name, 409, failures={"max_failed_trials": 9})
    advice = "limits.max_trials to at least 2 and failures.max_failed_trials to at least 1"
    assert problem["detail"].endswith(f"; to continue it, set {advice}")
    changed = patched(service, name, limits={"max_trials": 2}, failures={"max_failed_trials": 1})
    assert changed["status"] == "running"


def test_the_limit_of_failures_is_named_when_trials_are_left(service: Api) -> None:
    name = service.create(limits={"max_trials": 9}, failures={"max_failed_trials": 0})["name"]
    asked(service, name).fail()
    problem = patched(service, name, 409, limits={"max_trials": 10})
    assert problem["detail"].endswith("; to continue it, set failures.max_failed_trials to at least 1")


def test_what_can_still_be_changed_of_an_ending_experiment_is_named(service: Api) -> None:
    name = service.create(limits={"parallelism": 1})["name"]
    asked(service, name)
    service.post(f"/v1/experiments/{name}/stop")
    detail = patched(service, name, 409, limits={"max_trials": 300})["detail"]
    assert (
        "is ending (user) and only its checkpoints, failures, limits, objectives, priority, tags can be changed"
        in detail
    )


def stagnated(service: Api) -> str:
    """A trial that ran on while the experiment ended has improved on the best value."""
    limits = {"max_trials": 4, "parallelism": 3, "no_improvement": {"trials": 2}}
    name = str(service.create(limits=limits)["name"])
    ran(service, name, 0.5)
    last = asked(service, name)
    for _ in range(2):
        ran(service, name, 0.4)
    last.report(accuracy=0.9)
    last.finish("stopped")
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "no_improvement"
    return name


@pytest.mark.databases("sqlite", "postgresql")
def test_only_a_change_of_what_ended_an_experiment_continues_it(service: Api) -> None:
    name = stagnated(service)
    for other in ({"failures": {"report_timeout_seconds": 50}}, {"limits": {"max_trials": 9}}):
        problem = patched(service, name, 409, **other)
        assert problem["detail"].endswith("is completed (no_improvement); to continue it, change limits.no_improvement")
    assert changes(service, name) == []
    assert patched(service, name, limits={"no_improvement": {"trials": 3}})["status"] == "running"


def test_where_two_limits_have_been_passed_the_answer_names_both(service: Api) -> None:
    name = service.create(limits={"max_trials": 2, "parallelism": 2})["name"]
    ran(service, name, 0.5)
    held = asked(service, name)
    held.report(accuracy=0.6)
    patched(service, name, limits={"max_seconds": 1e-3})
    held.finish()
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "max_seconds"
    problem = patched(service, name, 409, limits={"max_seconds": 1000})
    assert problem["detail"].endswith("to continue it, change limits.max_trials, together with limits.max_seconds")
    assert "change limits.max_seconds" in patched(service, name, 409, limits={"max_trials": 3})["detail"]
    assert patched(service, name, limits={"max_seconds": 1000, "max_trials": 3})["status"] == "running"
