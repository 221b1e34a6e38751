"""Successive halving with promotion: trials pause at rungs, and resume from their checkpoints when promoted."""

import pytest

from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, propose
from service.settings import Settings
from tests.api.early_stopping.promotion import (
    GOOD_FIRST,
    IN_BRACKETS,
    PROMOTE,
    asked,
    bracket_of,
    decisions,
    experiment,
    given,
    paused_ones,
    report,
    resumed_at,
    run_out,
    started,
    statuses,
    train,
    trials,
)
from tests.conftest import Api, a_spec, running

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]


def test_of_nine_trials_three_reach_the_second_rung_and_one_the_last(service: Api) -> None:
    name = started(service)
    ran = run_out(service, name, GOOD_FIRST)
    assert ran == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (3, 0),
        (4, 0),
        (5, 0),
        (3, 1),
        *((n, 0) for n in (6, 7, 8)),
        (6, 1),
        (0, 3),
    ]
    reached = [trial["step"] for trial in trials(service, name)]
    assert [sum(step >= rung for step in reached) for rung in (1, 3, 9)] == [9, 3, 1]
    assert statuses(service, name) == ["completed", *["pruned"] * 8]
    why = "; the experiment ended before it was resumed: all 9 trials have ended (limits.max_trials is 9)"
    [*_, paused] = [one for one in decisions(service, name, "pause") if one["number"] == 3]
    assert trials(service, name)[3]["reason"] == f"{paused['reason']}{why}"
    ended = experiment(service, name)
    assert (ended["status"], ended["end_reason"], ended["best"]["number"]) == ("completed", "max_trials", 0)
    assert ended["best"]["attempt_count"] == 3


def test_a_trial_that_is_not_stopped_in_its_grace_period_is_not_said_to_pause(service: Api) -> None:
    name = started(service, early_stopping=PROMOTE | {"grace_steps": 5})
    for value in (0.9, 0.9, 0.9):
        assert report(given(service, name), value) == "continue"
    *_, first, tied = decisions(service, name, "continue")
    assert first["reason"] == (
        "accuracy 0.9 at step 1; 2 trials have reached rung 1, and none passes before 3 have; no trial is stopped "
        "before step 5"
    )
    assert tied["reason"] == (
        "accuracy 0.9 at step 1 is equal to 0.9, the cutoff of the best third of 3 trials (this one included) at rung "
        "1; older trials with this value come first; no trial is stopped before step 5"
    )


def test_a_trial_that_is_paused_without_a_checkpoint_says_what_a_resumption_costs(service: Api) -> None:
    name = started(service)
    held = given(service, name)
    assert held.report(accuracy=0.9)["decision"] == "stop"
    held.finish("stopped")
    [paused] = trials(service, name)
    assert paused["status"] == "paused"
    assert paused["reason"].endswith(
        "it is paused there; it has saved no checkpoint, so it would start from the beginning"
    )


def test_the_search_learns_from_a_paused_trial_as_from_one_stopped_at_that_rung(service: Api) -> None:
    tpe = {"sampler": "tpe", "seed": 3, "options": {"n_startup_trials": 2}}
    values = [0.9, 0.1, 0.2, 0.8]
    name = paused_ones(service, values, search=tpe)
    space = Space.model_validate(a_spec()["space"])
    study = Study(Problem(space, ("maximize",), prunes=True), SamplerSpec.model_validate(tpe), seed=3)
    seen = [
        Observation(number, trial["params"], "pruned", last_step=1, last_value=value)
        for number, (trial, value) in enumerate(zip(trials(service, name), values, strict=True))
    ]
    assert given(service, name).assignment["params"] == propose(study, seen, len(values))


def test_a_pause_and_a_promotion_are_explained(service: Api) -> None:
    name = started(service)
    for value in (0.4, 0.9):
        train(given(service, name), value)
    second = trials(service, name)[1]
    assert (second["status"], second["stopping"], second["ended_at"]) == ("paused", None, None)
    assert second["reason"] == (
        "accuracy 0.9 at step 1; 2 trials have reached rung 1, and none passes before 3 have; it is paused there"
    )
    train(given(service, name), 0.5)
    [*_, pause] = decisions(service, name, "pause")
    assert pause["reason"] == (
        "accuracy 0.5 at step 1 is below 0.9, "
        "the cutoff of the best third of 3 trials (this one included) at rung 1; it is paused there"
    )
    [promotion] = decisions(service, name, "promote")
    assert promotion == {
        "number": 1,
        "attempt": 1,
        "decision": "promote",
        "rule": "asha",
        "metric": "accuracy",
        "step": 1,
        "milestone": 1,
        "value": 0.9,
        "cutoff": 0.9,
        "compared_count": 2,
        "compared_with": [2, 0],
        "reason": (
            "accuracy 0.9 is equal to 0.9, "
            "the cutoff of the best third of 3 trials (this one included) at rung 1: promoted"
        ),
    }
    stored = service.get(f"/v1/trials/{second['id']}/decisions")["items"]
    assert [one["decision"] for one in stored] == ["pause", "promote"]
    assert trials(service, name)[1]["reason"] == promotion["reason"]


def test_a_pause_with_the_value_of_the_cutoff_says_why(service: Api) -> None:
    name = started(service)
    for value in (0.9, 0.4, 0.9):
        train(given(service, name), value)
    [*_, pause] = decisions(service, name, "pause")
    assert pause["number"] == 2
    assert pause["reason"] == (
        "accuracy 0.9 at step 1 is equal to 0.9, "
        "the cutoff of the best third of 3 trials (this one included) at rung 1; older trials with "
        "this value come first; it is paused there"
    )


def test_paused_trials_are_not_running_and_promoted_ones_start_before_new_ones(service: Api) -> None:
    name = started(service, parallelism=2)
    first, second = given(service, name), given(service, name)
    assert asked(service, name) is None
    assert [train(first, 0.9), train(second, 0.1)] == ["paused", "paused"]
    third, fourth = given(service, name), given(service, name)
    assert asked(service, name) is None
    assert report(third, 0.2) == "stop"  # the first is promoted now, and queued
    assert (
        experiment(service, name)["counts"] | {"queued": 1, "running": 2, "paused": 1}
        == experiment(service, name)["counts"]
    )
    assert asked(service, name) is None
    answer = third.finish("stopped", next=True)
    assert (answer["status"], answer["next"]["number"], answer["next"]["resume"]["step"]) == ("paused", 0, 1)
    assert asked(service, name) is None
    assert fourth.assignment["number"] == 3
    assert [trial["number"] for trial in trials(service, name, "?status=paused")] == [1, 2]


def test_a_trial_that_reaches_a_rung_among_the_best_is_not_paused(service: Api) -> None:
    name = started(service)
    for value in (0.1, 0.2):
        train(given(service, name), value)
    held = given(service, name)
    assert report(held, 0.9) == "continue"
    assert decisions(service, name, "continue")[0]["reason"] == (
        "accuracy 0.9 at step 1 is equal to 0.9, the cutoff of the best third of 3 trials (this one included) at rung 1"
    )
    assert decisions(service, name, "promote") == []


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_ties_do_not_promote_more_trials_than_the_quota(service: Api, direction: str) -> None:
    name = started(service, objectives=[{"metric": "accuracy", "direction": direction}])
    ran = run_out(service, name, [0.5] * 9)
    assert (
        len(
            {number for number, step in ran if step == 1}
            | {one["number"] for one in decisions(service, name, "continue") if one["milestone"] == 1}
        )
        == 3
    )
    assert statuses(service, name).count("completed") == 1


def test_a_trial_promoted_while_it_leaves_for_its_pause_continues_after_it_has_left(service: Api) -> None:
    name = started(service)
    slow = given(service, name)
    assert report(slow, 0.9) == "stop"
    for value in (0.1, 0.2):
        train(given(service, name), value)
    assert decisions(service, name, "promote") == []
    assert slow.finish("stopped")["status"] == "queued"
    assert [one["number"] for one in decisions(service, name, "promote")] == [0]
    again = given(service, name)
    assert (again.trial, resumed_at(again)) == (slow.trial, 1)
    assert report(again, 0.9) == "continue"


@pytest.mark.databases("sqlite", "postgresql")
def test_a_trial_whose_report_passes_several_rungs_is_paused_at_the_highest(service: Api) -> None:
    name = started(service)
    eager = given(service, name)
    reports = [{"sequence": 0, "step": 4, "metrics": {"accuracy": 0.5}, "checkpoint": "/4"}]
    assert eager.call("reports", 200, {"reports": reports})["decision"] == "stop"
    eager.finish("stopped")
    for value in (0.1, 0.2):
        train(given(service, name), value)
    assert eager.shown()["status"] == "paused"
    assert "reached rung 3, and none passes before 3 have" in eager.shown()["reason"]
    run_out(service, name, [0.9, 0, 0, 0.3, 0, 0, 0.2, 0, 0])
    said = decisions(service, name, "pause", "promote")
    at_rungs = [(one["number"], one["decision"], one["milestone"]) for one in said]
    assert at_rungs[:2] == [(0, "pause", 3), (1, "pause", 1)]
    assert (0, "promote", 3) in at_rungs
    assert eager.shown()["status"] == "completed"
    assert eager.shown()["attempts"][1]["resumed_from"] == "/4"


def test_a_paused_experiment_promotes_trials_and_starts_none(service: Api) -> None:
    name = started(service)
    held = [given(service, name) for _ in range(3)]
    service.post(f"/v1/experiments/{name}/pause")
    for one, value in zip(held, (0.1, 0.9, 0.2), strict=True):
        train(one, value)
    assert statuses(service, name) == ["paused", "queued", "paused"]
    assert asked(service, name) is None
    service.post(f"/v1/experiments/{name}/resume")
    assert given(service, name).assignment["number"] == 1


@pytest.mark.databases("sqlite", "postgresql")
def test_a_trial_is_promoted_among_the_trials_of_its_bracket(service: Api) -> None:
    name = started(service, early_stopping=IN_BRACKETS)
    run_out(service, name, GOOD_FIRST)
    said = decisions(service, name, "pause", "promote")
    assert len({bracket_of(one["number"]) for one in said}) > 1
    for one in said:
        own = bracket_of(one["number"])
        assert {bracket_of(other) for other in one["compared_with"]} <= {own}
        assert f"rung {one['milestone']} of bracket {own}" in one["reason"]


def test_a_service_process_promotes_trials_that_another_one_paused(settings: Settings) -> None:
    with running(settings) as one:
        name = started(one)
        for value in (0.9, 0.1):
            train(given(one, name), value)
        leaving = given(one, name)
        report(leaving, 0.5)
    with running(settings) as another:
        leaving.api = another
        assert leaving.finish("stopped")["status"] == "paused"
        again = given(another, name)
        assert (again.assignment["number"], resumed_at(again)) == (0, 1)
