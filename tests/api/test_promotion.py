"""Successive halving with promotion: trials pause at rungs, and resume from their checkpoints when promoted."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from search.early_stopping.rules.hyperband import Hyperband
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, propose
from service.settings import Settings
from service.store.tables import ExperimentRow
from tests.conftest import Api, Held, a_spec, running

PROMOTE = {"rule": "asha", "min_step": 1, "reduction_factor": 3, "promote": True}
IN_BRACKETS = PROMOTE | {"rule": "hyperband", "reduction_factor": 2, "max_step": 9}
STEPS = 9
GOOD_FIRST = [0.9, 0.1, 0.2, 0.8, 0.3, 0.4, 0.7, 0.5, 0.6]


def started(service: Api, *, max_trials: int = 9, parallelism: int = 10, **changes: Any) -> str:
    limits = {"max_trials": max_trials, "parallelism": parallelism}
    name: str = service.create(**{"early_stopping": PROMOTE, "limits": limits} | changes)["name"]
    return name


def asked(service: Api, name: str) -> Held | None:
    response = service.http.post(f"/v1/experiments/{name}/ask")
    return Held(service, response.json()) if response.status_code == 200 else None


def given(service: Api, name: str) -> Held:
    held = asked(service, name)
    assert held
    return held


def resumed_at(held: Held) -> int:
    resume = held.assignment["resume"]
    return int(resume["step"]) if resume else 0


def report(held: Held, value: float) -> str:
    """Report the next step, with a checkpoint."""
    step = resumed_at(held) + held.sequence + 1
    return str(held.report(accuracy=value, checkpoint=f"/{held.trial}/{step}")["decision"])


def train(held: Held, value: float, last_step: int = STEPS) -> str:
    """Report from the checkpoint's step on until a stop or the last step; returns the trial's new status."""
    for step in range(resumed_at(held) + 1, last_step + 1):
        if report(held, value) == "stop" and step < last_step:
            return str(held.finish("stopped")["status"])
    return str(held.finish()["status"])


def run_out(service: Api, name: str, values: Sequence[float]) -> list[tuple[int, int]]:
    """Run trials one at a time until none is left; returns each one's number and first step."""
    ran = []
    while (held := asked(service, name)) is not None:
        ran.append((held.assignment["number"], resumed_at(held)))
        train(held, values[held.assignment["number"]])
    return ran


def bracket_of(number: int) -> int:
    return Hyperband.model_validate(IN_BRACKETS).bracket_of(number)


def experiment(service: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/v1/experiments/{name}")
    return found


def trials(service: Api, name: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.get(f"/v1/experiments/{name}/trials{query}")["items"]
    return found


def statuses(service: Api, name: str) -> list[str]:
    return [trial["status"] for trial in trials(service, name)]


def decisions(service: Api, name: str, *kinds: str) -> list[dict[str, Any]]:
    numbers = {trial["id"]: trial["number"] for trial in trials(service, name)}
    return [
        {"number": numbers[event["trial"]], **event["data"]}
        for event in service.events(name)
        if event["kind"] == "decision" and event["data"]["decision"] in kinds
    ]


def paused_ones(service: Api, values: Sequence[float], **changes: Any) -> str:
    """An experiment that may have more trials, whose trials so far are all paused at the first rung."""
    name = started(service, **{"early_stopping": PROMOTE | {"reduction_factor": 9}} | changes)
    for value in values:
        assert train(given(service, name), value) == "paused"
    return name


def patched(service: Api, name: str, **changes: Any) -> None:
    service.http.patch(f"/v1/experiments/{name}", json=changes).raise_for_status()


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
    assert trials(service, name)[3]["reason"] == "paused at step 3 when the experiment ended: max_trials"
    ended = experiment(service, name)
    assert (ended["status"], ended["end_reason"], ended["best"]["number"]) == ("completed", "max_trials", 0)
    assert ended["best"]["attempt_count"] == 3


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
        "no trial passes rung 1 until 3 have reached it, and accuracy 0.9 at step 1 is number 2; it is paused there"
    )
    train(given(service, name), 0.5)
    [*_, pause] = decisions(service, name, "pause")
    assert pause["reason"] == (
        "accuracy 0.5 at step 1 is below 0.9, the cutoff of the best third of 3 trials at rung 1; it is paused there"
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
        "reason": "accuracy 0.9 is equal to 0.9, the cutoff of the best third of 3 trials at rung 1: promoted",
    }
    stored = service.get(f"/v1/trials/{second['id']}/decisions")["items"]
    assert [one["decision"] for one in stored] == ["pause", "promote"]
    assert trials(service, name)[1]["reason"] == promotion["reason"]


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
        "accuracy 0.9 at step 1 is equal to 0.9, the cutoff of the best third of 3 trials at rung 1"
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


def test_reports_made_while_a_trial_leaves_are_judged_when_it_continues(service: Api) -> None:
    """The trial was asked to leave at rung 1 and left at step 4. It had reached rung 3 by then."""
    name = started(service)
    eager = given(service, name)
    reports = [{"sequence": n, "metrics": {"accuracy": 0.5 + n / 10}, "checkpoint": f"/{n}"} for n in range(4)]
    assert eager.call("reports", 200, {"reports": reports})["decision"] == "stop"
    eager.finish("stopped")
    for value in (0.1, 0.2):
        train(given(service, name), value)
    assert [
        (one["number"], one["decision"], one["milestone"], one["value"])
        for one in decisions(service, name, "pause", "promote")
    ][-2:] == [
        (0, "promote", 1, 0.5),
        (0, "pause", 3, 0.7),
    ]
    assert eager.shown()["status"] == "paused"
    assert "no trial passes rung 3" in eager.shown()["reason"]
    run_out(service, name, [0.9, 0, 0, 0.3, 0, 0, 0.2, 0, 0])
    assert eager.shown()["status"] == "completed"
    assert eager.shown()["attempts"][1]["resumed_from"] == "/3"


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


def test_a_trial_that_ends_when_asked_to_pause_has_completed(service: Api) -> None:
    name = started(service)
    held = given(service, name)
    assert report(held, 0.9) == "stop"
    assert held.finish()["status"] == "completed"
    assert held.shown()["reason"] is None


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


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_paused_trials_are_pruned_when_a_user_ends_the_experiment(service: Api, how: str) -> None:
    name = paused_ones(service, [0.9, 0.1])
    running, leaving = given(service, name), given(service, name)
    report(leaving, 0.5)
    service.post(f"/v1/experiments/{name}/{how}")
    assert statuses(service, name) == ["pruned", "pruned", "running", "running"]
    assert trials(service, name)[0]["reason"] == "paused at step 1 when the experiment ended: user"
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


def test_no_trial_is_promoted_when_the_time_is_over(service: Api) -> None:
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
    assert last["reason"] == "accuracy 0.9 is equal to 0.9, the cutoff of the best of 2 trials at rung 1: promoted"


def stopped(service: Api, held: Held) -> None:
    report(held, 0.9)
    service.post(f"/v1/trials/{held.trial}/stop")
    held.finish("stopped")


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
    told = decisions(service, name, "promote")[1]
    assert (told["number"], told["milestone"], told["cutoff"]) == (2, 1, None)
    assert told["reason"] == (
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


def test_a_trial_is_promoted_among_the_trials_of_its_bracket(service: Api) -> None:
    name = started(service, early_stopping=IN_BRACKETS)
    run_out(service, name, GOOD_FIRST)
    said = decisions(service, name, "pause", "promote")
    assert len({bracket_of(one["number"]) for one in said}) > 1
    for one in said:
        own = bracket_of(one["number"])
        assert {bracket_of(other) for other in one["compared_with"]} <= {own}
        assert f"rung {one['milestone']} of bracket {own}" in one["reason"]


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


@pytest.mark.parametrize("end", ["stop", "fail"])
def test_a_trial_retried_after_a_rule_change_is_judged_only_beyond_its_earlier_reports(service: Api, end: str) -> None:
    """The trial was asked to pause at rung 1 and reported up to step 4, which is beyond the new rule's second rung."""
    name = started(service)
    eager = given(service, name)
    reports = [{"sequence": n, "metrics": {"accuracy": 0.5}, "checkpoint": f"/{n}"} for n in range(4)]
    eager.call("reports", 200, {"reports": reports})
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


FACTS = ("milestone", "value", "cutoff", "compared_count", "compared_with", "reason")


def facts(decision: dict[str, Any]) -> tuple[Any, ...]:
    return (decision["number"], *(decision[name] for name in FACTS))


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
