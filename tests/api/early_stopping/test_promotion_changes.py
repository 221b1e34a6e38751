"""Promotion over HTTP: changes of the rule or the limits, and replays."""

import random
from typing import Any

import pytest

from tests.api.early_stopping.promotion import (
    GOOD_FIRST,
    IN_BRACKETS,
    PROMOTE,
    STEPS,
    asked,
    bracket_of,
    decisions,
    facts,
    given,
    patched,
    paused_ones,
    report,
    resumed_at,
    run_out,
    started,
    statuses,
    trials,
)
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


@pytest.mark.databases("sqlite", "postgresql")
def test_all_trials_continue_under_a_new_rule_without_pauses(service: Api) -> None:
    name = paused_ones(service, [0.9, 0.1])
    leaving = given(service, name)
    report(leaving, 0.5)
    patched(service, name, early_stopping={"promote": False})
    assert statuses(service, name) == ["queued", "queued", "running"]
    assert leaving.finish("stopped")["status"] == "queued"
    assert {trial["reason"] for trial in trials(service, name)} == {"early stopping was changed"}
    assert [resumed_at(given(service, name)) for _ in range(3)] == [1, 1, 1]


def test_a_changed_rule_promotes_the_trials_that_it_would_have_promoted(service: Api) -> None:
    name = paused_ones(service, [0.9, 0.1, 0.5])
    patched(service, name, early_stopping={"reduction_factor": 3})
    assert statuses(service, name) == ["queued", "paused", "paused"]
    patched(service, name, early_stopping={"min_step": 2})
    assert statuses(service, name) == ["queued", "queued", "queued"]  # none has come to the first rung yet


def test_paused_trials_move_to_the_brackets_of_a_new_rule(service: Api) -> None:
    """A trial that has reached no rung of its bracket continues, and so does the best of the lowest bracket."""
    name = paused_ones(service, GOOD_FIRST, max_trials=20, early_stopping=PROMOTE | {"reduction_factor": 10})
    patched(service, name, early_stopping=IN_BRACKETS)
    lowest = sorted((-value, number) for number, value in enumerate(GOOD_FIRST) if bracket_of(number) == 0)
    best = {number for _, number in lowest[: len(lowest) // 2]}
    assert 0 < len(best) < len(lowest) < len(GOOD_FIRST)
    assert {one["number"] for one in decisions(service, name, "promote")} == best
    paused = {trial["number"] for trial in trials(service, name) if trial["status"] == "paused"}
    assert paused == {number for _, number in lowest} - best


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("end", ["stop", "fail"])
def test_a_trial_retried_after_a_rule_change_is_judged_only_beyond_its_earlier_reports(service: Api, end: str) -> None:
    """The trial was asked to pause at rung 1 by its report of step 4, which is beyond the new rule's second rung."""
    name = started(service)
    eager = given(service, name)
    far = {"sequence": 0, "step": 4, "metrics": {"accuracy": 0.5}, "checkpoint": "/4"}
    eager.call("reports", 200, {"reports": [far]})
    if end == "fail":
        eager.fail()
    else:
        eager.finish("stopped")
        service.post(f"/v1/trials/{eager.trial}/stop")
    patched(service, name, early_stopping={"reduction_factor": 2})
    service.post(f"/v1/trials/{eager.trial}/retry")
    again = given(service, name)
    assert (again.trial, resumed_at(again)) == (eager.trial, 4)
    assert [report(again, 0.5) for _ in range(4)] == ["continue"] * 3 + ["stop"]
    assert decisions(service, name, "pause")[-1]["milestone"] == 8


def test_a_lowered_max_trials_promotes_the_best_of_too_few_trials(service: Api) -> None:
    name = paused_ones(service, [0.9, 0.1])
    assert statuses(service, name) == ["paused", "paused"]
    patched(service, name, limits={"max_trials": 2})
    assert statuses(service, name) == ["queued", "paused"]


def test_an_extended_experiment_compares_new_trials_with_earlier_ones(service: Api) -> None:
    name = started(service)
    run_out(service, name, GOOD_FIRST)
    patched(service, name, limits={"max_trials": 12})
    assert run_out(service, name, [*GOOD_FIRST, 0.95, 0.05, 0.65]) == [(9, 0), (10, 0), (11, 0)]
    assert statuses(service, name)[9:] == ["completed", "pruned", "pruned"]


def test_promotion_is_replayed_on_complete_curves(service: Api) -> None:
    name = started(service, early_stopping={"rule": "none"}, max_trials=6)
    run_out(service, name, [0.8, 0.1, 0.9, 0.2, 0.3, 0.4])
    answer = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": PROMOTE | {"max_step": 9}})
    assert [(one["number"], one["steps_saved"]) for one in answer["stopped"]] == [
        (0, 6),
        (1, 8),
        (3, 8),
        (4, 8),
        (5, 8),
    ]
    assert [(one["number"], one["decision"], one["milestone"]) for one in answer["released"]] == [
        (0, "promote", 1),
        (2, "promote", 3),
    ]
    assert (answer["pause_count"], answer["steps_saved"], answer["best_lost"]) == (7, 38, False)


def simulated(service: Api, seed: int, *, trials: int = 14, **changes: Any) -> str:
    """Trials, four at a time, that report and leave in a random order; some are lost or fail."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    name = started(service, max_trials=trials, parallelism=4, failures={"max_retries": 1}, **changes)
    quality = {number: chance.choice([0.2, 0.4, chance.random()]) for number in range(trials)}
    at_work: list[tuple[Held, bool]] = []
    while True:
        while len(at_work) < 4 and (held := asked(service, name)):
            at_work.append((held, False))
        if not at_work:
            return name
        held, leaving = at_work.pop(chance.randrange(len(at_work)))
        if leaving:
            held.finish("stopped")
        elif chance.random() < 0.05:
            held.fail(chance.choice(["lost", "user_error"]))
        elif resumed_at(held) + held.sequence == STEPS:
            held.finish()
        else:
            value = quality[held.assignment["number"]] + 0.1 * chance.random()
            at_work.append((held, report(held, value) == "stop"))


@pytest.mark.parametrize(
    ("rule", "seed"),
    [
        (PROMOTE | {"reduction_factor": 2}, 0),
        (IN_BRACKETS, 0),
        pytest.param(PROMOTE, 1, marks=pytest.mark.slow),
        pytest.param(PROMOTE | {"reduction_factor": 2}, 2, marks=pytest.mark.slow),
        pytest.param(IN_BRACKETS, 3, marks=pytest.mark.slow),
    ],
)
def test_a_replay_of_the_experiments_own_rule_pauses_and_promotes_the_same_trials(
    service: Api, rule: dict[str, Any], seed: int
) -> None:
    name = simulated(service, seed, early_stopping=rule)
    answer = service.post(f"/v1/experiments/{name}/replay", json={"early_stopping": rule})
    assert sorted(map(facts, answer["released"])) == sorted(map(facts, decisions(service, name, "promote")))
    assert answer["released"]
    pauses = decisions(service, name, "pause")
    assert answer["pause_count"] == len(pauses)
    last = {pause["number"]: facts(pause) for pause in pauses}
    pruned = {trial["number"] for trial in trials(service, name) if trial["status"] == "pruned"}
    assert {stop["number"]: facts(stop) for stop in answer["stopped"]} == {number: last[number] for number in pruned}
    assert answer["unknown_count"] == 0
    assert answer["best_lost"] is False
