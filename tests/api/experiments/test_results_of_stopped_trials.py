"""Trials that end by their time limit, or that their client stops, have results: the search and analyses use them."""

from typing import Any

import pytest
from sqlalchemy import select

from service.store.tables import TrialRow
from service.store.trials.ended_trials import ran_to_completion
from tests.conftest import Api, Held

pytestmark = pytest.mark.slow


def stopped(service: Api, name: str) -> Held:
    """A trial that ends as by its time limit, after a report."""
    held = service.ask(name)
    assert held
    held.report(accuracy=-abs(held.assignment["params"]["lr"] - 0.3))
    held.finish("stopped")
    assert held.shown()["status"] == "stopped"
    return held


@pytest.mark.parametrize(
    "search", [{"sampler": "nsga2", "options": {"population_size": 4}}, {"sampler": "gp"}], ids=["nsga2", "gp"]
)
def test_the_search_learns_from_them(service: Api, search: dict[str, Any]) -> None:
    space = {name: {"type": "float", "low": 0, "high": 1} for name in ("lr", "momentum")}
    name = service.create(space=space, search=search | {"seed": 1}, limits={"max_trials": 20})["name"]
    for _ in range(8):
        stopped(service, name)
    assert stopped(service, name).shown()["source"] == "model"


def test_importance_counts_them(service: Api) -> None:
    name = service.create()["name"]
    for _ in range(10):
        stopped(service, name)
    found = service.get(f"/v1/experiments/{name}/importance")
    assert (found["measure"], found["trial_count"], found["used_count"], found["reason"]) == ("value", 10, 10, None)


def test_a_trial_that_a_user_stops_has_no_result(service: Api) -> None:
    name = service.create()["name"]
    for _ in range(10):
        held = service.ask(name)
        assert held
        held.report(accuracy=0.5)
        service.post(f"/v1/trials/{held.trial}/stop")
        held.finish("stopped")
    assert service.get(f"/v1/experiments/{name}/importance")["reason"]


def test_trials_that_are_stopped_while_they_are_queued_or_paused_have_no_result(service: Api) -> None:
    rule = {"rule": "asha", "min_step": 1, "promote": True, "reduction_factor": 3}
    name = service.create(early_stopping=rule, limits={"max_trials": 30, "parallelism": 30})["name"]
    held = [one for one in (service.ask(name) for _ in range(4)) if one]
    paused = [one for one in held if one.report(accuracy=0.5)["decision"] == "stop"]
    assert len(paused) > 2
    for one in held:
        one.finish("stopped" if one in paused else "completed")
    for one in paused[:2]:  # by a user
        service.post(f"/v1/trials/{one.trial}/stop")
    lost = service.ask(name)
    assert lost
    lost.report(accuracy=0.1)
    lost.fail("lost")
    service.post(f"/v1/experiments/{name}/stop")
    with service.app.state.context.database.read() as session:
        trials = session.scalars(select(TrialRow)).all()
    ended = {trial.status for trial in trials if not ran_to_completion(trial)}
    assert ended == {"stopped", "pruned"}
    assert all(trial.status == "completed" for trial in trials if ran_to_completion(trial))


def test_a_queued_trial_that_is_stopped_does_not_keep_failures_from_ending_the_experiment(service: Api) -> None:
    name = service.create(enqueue=[{"lr": 0.1}], limits={"max_trials": 20, "parallelism": 1})["name"]
    [queued] = service.get(f"/v1/experiments/{name}/trials")["items"]
    service.post(f"/v1/trials/{queued['id']}/stop")
    for _ in range(5):
        held = service.ask(name)
        assert held
        held.fail()
    assert service.get(f"/v1/experiments/{name}")["end_reason"] == "too_many_failures"


def test_a_confirmation_that_ends_by_its_time_limit_and_is_infeasible_counts_against_its_configuration(
    service: Api,
) -> None:
    name = service.create(
        constraints=[{"metric": "memory", "max": 1}],
        confirm={"top": 2, "seeds": 2},
        limits={"max_trials": 6, "parallelism": 1},
    )["name"]
    for accuracy in (0.9, 0.8):
        held = service.ask(name)
        assert held
        held.report(accuracy=accuracy, memory=0.5)
        held.finish()
    for _ in range(4):
        held = service.ask(name)
        assert held
        fails = held.shown()["confirms"] == 0 and held.shown()["seed"] == 2
        held.report(accuracy=0.9 - held.shown()["confirms"] / 10, memory=2 if fails else 0.5)
        held.finish("stopped")
    ranking = service.get(f"/v1/experiments/{name}/best")["confirmation"]["ranking"]
    assert [(one["number"], one["n"], one["failed_count"]) for one in ranking] == [(1, 2, 0), (0, 1, 1)]


def test_failures_end_no_experiment_in_which_trials_have_run_until_their_time_limit(service: Api) -> None:
    name = service.create(limits={"max_trials": 20, "parallelism": 1})["name"]
    stopped(service, name)
    for _ in range(6):
        held = service.ask(name)
        assert held
        held.fail("cannot_start", "the file data.csv does not exist")
    assert service.get(f"/v1/experiments/{name}")["status"] == "running"
