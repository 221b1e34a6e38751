"""Promotion over HTTP: trials that end while they are paused or leaving, and the end of the experiment."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from service.store.tables import ExperimentRow
from tests.api.early_stopping.promotion import (
    PROMOTE,
    asked,
    decisions,
    experiment,
    facts,
    given,
    patched,
    paused_ones,
    report,
    resumed_at,
    run_out,
    started,
    statuses,
    stopped,
    train,
    trials,
)
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


@pytest.mark.parametrize("kind", ["lost", "preempted"])
def test_a_trial_that_is_lost_while_leaving_for_its_pause_is_paused(service: Api, kind: str) -> None:
    name = started(service)
    held = given(service, name)
    report(held, 0.9)
    assert held.fail(kind, "its node is gone")["status"] == "paused"
    for value in (0.1, 0.2):
        train(given(service, name), value)
    assert resumed_at(given(service, name)) == 1


def test_a_trial_that_fails_while_leaving_for_its_pause_has_failed(service: Api) -> None:
    name = started(service)
    held = given(service, name)
    report(held, 0.9)
    assert held.fail()["status"] == "failed"
    with_retries = started(service, failures={"max_retries": 1})
    held = given(service, with_retries)
    report(held, 0.9)
    assert held.fail()["status"] == "paused"


@pytest.mark.databases("sqlite", "postgresql")
def test_a_trial_that_ends_when_asked_to_pause_has_completed(service: Api) -> None:
    name = started(service)
    held = given(service, name)
    assert report(held, 0.9) == "stop"
    assert held.finish()["status"] == "completed"
    assert held.shown()["reason"] is None


@pytest.mark.databases("sqlite", "postgresql")
def test_a_stop_ends_a_paused_trial_immediately_and_a_leaving_one_after_it_has_left(service: Api) -> None:
    name = paused_ones(service, [0.9])
    [paused] = trials(service, name)
    assert service.post(f"/v1/trials/{paused['id']}/stop")["status"] == "stopped"
    leaving = given(service, name)
    report(leaving, 0.1)
    service.post(f"/v1/trials/{leaving.trial}/stop")
    assert leaving.finish("stopped")["status"] == "stopped"
    assert leaving.shown()["reason"] == "a user stopped it"


def test_a_paused_trial_is_not_retried_and_a_stopped_one_resumes_from_its_checkpoint(service: Api) -> None:
    name = paused_ones(service, [0.9])
    [paused] = trials(service, name)
    refused = service.post(f"/v1/trials/{paused['id']}/retry", 409)
    assert (refused["trial_status"], refused["allowed"]) == ("paused", ["stop"])
    service.post(f"/v1/trials/{paused['id']}/stop")
    service.post(f"/v1/trials/{paused['id']}/retry")
    again = given(service, name)
    assert (again.trial, resumed_at(again), train(again, 0.9)) == (paused["id"], 1, "completed")


@pytest.mark.parametrize(("how", "why"), [("stop", "a user stopped it"), ("cancel", "a user cancelled it")])
def test_paused_trials_are_pruned_when_a_user_ends_the_experiment(service: Api, how: str, why: str) -> None:
    name = paused_ones(service, [0.9, 0.1])
    running, leaving = given(service, name), given(service, name)
    report(leaving, 0.5)
    service.post(f"/v1/experiments/{name}/{how}")
    assert statuses(service, name) == ["pruned", "pruned", "running", "running"]
    paused = "accuracy 0.9 at step 1; 1 trial has reached rung 1, and none passes before 9 have; it is paused there"
    ended = f"the experiment ended before it was resumed: {why}"
    assert trials(service, name)[0]["reason"] == f"{paused}; {ended}"
    assert [running.finish("stopped")["status"], leaving.finish("stopped")["status"]] == ["stopped", "stopped"]
    assert experiment(service, name)["status"] == "stopped"


def test_paused_trials_are_pruned_when_the_target_is_reached(service: Api) -> None:
    objectives = [{"metric": "accuracy", "direction": "maximize", "target": 0.95}]
    name = paused_ones(service, [0.9, 0.1], objectives=objectives)
    lucky = given(service, name)
    report(lucky, 0.96)
    assert statuses(service, name) == ["pruned", "pruned", "running"]
    assert lucky.finish("stopped")["status"] == "completed"
    assert experiment(service, name)["end_reason"] == "target_reached"


def test_paused_trials_are_pruned_when_the_time_is_over(service: Api) -> None:
    name = paused_ones(service, [0.9, 0.1])
    patched(service, name, limits={"max_seconds": 1e-3})
    assert statuses(service, name) == ["pruned", "pruned"]
    ended = experiment(service, name)
    assert (ended["status"], ended["end_reason"]) == ("completed", "max_seconds")


def test_no_trial_is_promoted_when_the_time_is_over(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call notices that it is over, and not the background loop."""
    monkeypatch.setattr("service.background.time_limits.enforce_time_limits", lambda *_: 0)
    name = started(service, max_trials=2)
    train(given(service, name), 0.9)
    last = given(service, name)
    report(last, 0.1)
    patched(service, name, limits={"max_seconds": 3600})
    with service.app.state.context.database.write() as session:
        session.query(ExperimentRow).one().created_at -= timedelta(hours=2)
    assert last.finish("stopped")["status"] == "pruned"
    assert (decisions(service, name, "promote"), statuses(service, name)) == ([], ["pruned", "pruned"])


def test_the_best_of_too_few_trials_at_a_rung_still_runs_to_the_end(service: Api) -> None:
    name = started(service, max_trials=2)
    assert run_out(service, name, [0.1, 0.9]) == [(0, 0), (1, 0), (1, 1), (1, 3)]
    assert statuses(service, name) == ["pruned", "completed"]
    last = decisions(service, name, "promote")[0]
    assert last["reason"] == (
        "accuracy 0.9 is equal to 0.9, the cutoff of the best 1 of 2 trials (this one included) at rung 1: promoted"
    )


@pytest.mark.parametrize("extra_count", [0, 2])
def test_a_trial_that_is_promoted_before_a_rung_has_its_bootstrap_is_said_to_be_the_best_one(
    service: Api, extra_count: int
) -> None:
    rule = PROMOTE | {"bootstrap_count": 9, "extra_count": extra_count}
    name = started(service, max_trials=6, early_stopping=rule)
    run_out(service, name, [0.1, 0.2, 0.9, 0.3, 0.4, 0.5])
    [first, *_] = decisions(service, name, "promote")
    assert (first["number"], first["cutoff"]) == (2, 0.9)
    assert first["reason"] == (
        "accuracy 0.9 is equal to 0.9, the cutoff of the best 1 of 6 trials (this one included) at rung 1: promoted"
    )


def failed(_service: Api, held: Held) -> None:
    report(held, 0.9)
    held.fail()


@pytest.mark.parametrize("ends", [failed, stopped])
def test_when_a_promoted_trial_fails_the_next_best_runs_to_the_end(
    service: Api, ends: Callable[[Api, Held], None]
) -> None:
    """The next ones are promoted one after the other, as long as none has reached the last rung."""
    name = started(service, max_trials=3)
    for value in (0.2, 0.9, 0.5):
        train(given(service, name), value)
    for number in (1, 2):
        held = given(service, name)
        assert (held.assignment["number"], resumed_at(held)) == (number, 1)
        assert asked(service, name) is None
        ends(service, held)
    assert run_out(service, name, [0.2, 0.9, 0.5])[0] == (0, 1)
    assert statuses(service, name) == ["completed", ends.__name__, ends.__name__]
    stored = decisions(service, name, "promote")[1]
    assert (stored["number"], stored["milestone"], stored["cutoff"]) == (2, 1, None)
    assert stored["reason"] == (
        "accuracy 0.5 is the best of the trials paused at rung 1, and no trial has completed: promoted"
    )
    answer = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": PROMOTE})
    assert sorted(map(facts, answer["released"]), key=str) == sorted(
        map(facts, decisions(service, name, "promote")), key=str
    )


def test_no_trial_is_promoted_when_all_fail(service: Api) -> None:
    name = started(service, max_trials=3)
    for value in (0.1, 0.9, 0.5):
        train(given(service, name), value)
    for _ in range(3):
        failed(service, given(service, name))
    assert statuses(service, name) == ["failed"] * 3
    assert experiment(service, name)["status"] == "failed"


def test_in_an_exhausted_space_the_best_trial_runs_to_the_end(service: Api) -> None:
    space = {"lr": {"type": "categorical", "choices": [0.1, 0.2]}}
    name = started(service, space=space, search={"sampler": "grid"})
    assert run_out(service, name, [0.9, 0.1]) == [(0, 0), (1, 0), (0, 1), (0, 3)]  # every ask in between gets a trial
    ended = experiment(service, name)
    assert (ended["status"], ended["end_reason"]) == ("completed", "space_exhausted")
    assert statuses(service, name) == ["completed", "pruned"]
