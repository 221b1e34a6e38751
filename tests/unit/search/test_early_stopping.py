"""Early stopping decides as Optuna's pruners do, and says why in a sentence."""

from collections.abc import Callable
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from search.early_stopping import PLANNED, EarlyStoppingSpec, Peer, PeerList, Rule, Verdict, rule_for
from search.problem import Direction

# Few distinct values, so that trials often tie.
VALUES = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
DIRECTIONS: st.SearchStrategy[Any] = st.sampled_from(["minimize", "maximize"])


class Spec(BaseModel):
    early_stopping: EarlyStoppingSpec


def rule_of(**options: Any) -> Rule:
    return rule_for(Spec.model_validate({"early_stopping": options}).early_stopping)


def ask(rule: Rule, value: float, peers: list[float], *, step: int = 3, direction: Direction = "maximize") -> Verdict:
    verdict = rule.judge(
        metric="val_accuracy",
        direction=direction,
        milestone=step,
        step=step,
        curve={step: value},
        peers=PeerList([Peer(number, peer, completed=True) for number, peer in enumerate(peers)]),
    )
    assert verdict is not None
    return verdict


class Ours:
    """What the service does with a rule: keeps each trial's curve, and the first value at each milestone."""

    def __init__(self, rule: Rule, direction: Direction) -> None:
        self.rule, self.direction = rule, direction
        self.curves: dict[int, dict[int, float]] = {}
        self.reached: dict[int, dict[int, float]] = {}
        self.completed: set[int] = set()

    def report(self, trial: int, step: int, value: float) -> Verdict | None:
        curve = self.curves.setdefault(trial, {})
        previous = max(curve, default=None)
        curve[step] = value
        verdict = None
        for milestone in self.rule.milestones(previous, step):
            self.reached.setdefault(milestone, {}).setdefault(trial, value)
            verdict = self.judge(trial, milestone, step)
            if verdict is not None and verdict.stop:
                break
        return verdict

    def judge(self, trial: int, milestone: int, step: int) -> Verdict | None:
        there = self.reached[milestone].items()
        return self.rule.judge(
            metric="loss",
            direction=self.direction,
            milestone=milestone,
            step=step,
            curve=self.curves[trial],
            peers=PeerList([Peer(other, value, other in self.completed) for other, value in there if other != trial]),
            completed_count=len(self.completed),
        )


def decisions_agree(
    data: st.DataObject, rule: Rule, pruner: optuna.pruners.BasePruner, direction: Direction, *, jump: int
) -> None:
    """Trials that report in any order, at any steps, are stopped at the same reports by the rule and by Optuna."""
    study = optuna.create_study(direction=direction, pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
    ours = Ours(rule, direction)
    trials = {number: study.ask() for number in range(data.draw(st.integers(1, 8), label="trials"))}
    steps = dict.fromkeys(trials, -1)
    for _ in range(data.draw(st.integers(1, 40), label="reports")):
        if not trials:
            return
        number = data.draw(st.sampled_from(sorted(trials)), label="trial")
        steps[number] += data.draw(st.integers(1, jump), label="steps on")
        value = data.draw(VALUES, label="value")
        trials[number].report(value, steps[number])
        stop = trials[number].should_prune()
        verdict = ours.report(number, steps[number], value)
        assert stop == (verdict is not None and verdict.stop), verdict
        if stop:
            study.tell(trials.pop(number), state=optuna.trial.TrialState.PRUNED)
        elif data.draw(st.integers(0, 4), label="goes on") == 0:
            study.tell(trials.pop(number), value)
            ours.completed.add(number)


@given(
    data=st.data(),
    direction=DIRECTIONS,
    min_step=st.integers(1, 3),
    reduction_factor=st.integers(2, 4),
    rate=st.integers(0, 1),
    bootstrap_count=st.sampled_from([0, 0, 2]),
)
def test_asha_stops_whom_optuna_prunes(
    data: st.DataObject, direction: Direction, min_step: int, reduction_factor: int, rate: int, bootstrap_count: int
) -> None:
    shared = {
        "reduction_factor": reduction_factor,
        "min_early_stopping_rate": rate,
        "bootstrap_count": bootstrap_count,
    }
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=min_step, **shared)
    rule = rule_of(rule="asha", min_step=min_step, **shared)
    decisions_agree(data, rule, pruner, direction, jump=6)


@given(
    data=st.data(),
    direction=DIRECTIONS,
    startup=st.integers(0, 3),
    warmup=st.integers(0, 4),
    interval=st.integers(1, 4),
    fewest=st.integers(1, 2),
)
def test_median_stops_whom_optuna_prunes(
    data: st.DataObject, direction: Direction, startup: int, warmup: int, interval: int, fewest: int
) -> None:
    pruner = optuna.pruners.MedianPruner(startup, warmup, interval, n_min_trials=fewest)
    rule = rule_of(
        rule="median", n_startup_trials=startup, n_warmup_steps=warmup, interval_steps=interval, n_min_trials=fewest
    )
    decisions_agree(data, rule, pruner, direction, jump=2)


def test_no_rule_never_says_anything() -> None:
    assert rule_of().milestones(None, 100) == rule_of(rule="none").milestones(3, 4) == []


def test_a_jump_over_several_rungs_reaches_them_all_once() -> None:
    rule = rule_of(rule="asha", min_step=1, reduction_factor=3)
    assert rule.milestones(None, 10) == [1, 3, 9]
    assert rule.milestones(2, 10) == [3, 9]
    assert rule.milestones(10, 26) == []
    assert rule.milestones(10, 9) == []  # a retry goes over known ground


BEST_THIRD = [0.9, 0.85, 0.83, 0.5, 0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("options", "value", "peers", "stop", "cutoff", "reason"),
    [
        (
            {"rule": "asha"},
            0.71,
            BEST_THIRD,
            True,
            0.83,
            "val_accuracy 0.71 at step 3 is below 0.83, the cutoff of the best third of 9 trials at rung 3",
        ),
        (
            {"rule": "asha"},
            0.88,
            BEST_THIRD,
            False,
            0.85,
            "val_accuracy 0.88 at step 3 is above 0.85, the cutoff of the best third of 9 trials at rung 3",
        ),
        (
            {"rule": "asha", "reduction_factor": 7},
            0.9,
            BEST_THIRD,
            False,
            0.9,
            "val_accuracy 0.9 at step 3 is equal to 0.9, the cutoff of the best 1/7 of 9 trials at rung 3",
        ),
        (
            {"rule": "asha"},
            0.82999,
            [0.83],
            True,
            0.83,
            "val_accuracy 0.82999 at step 3 is below 0.83, the cutoff of the best of 2 trials at rung 3",
        ),
        ({"rule": "asha"}, 0.1, [], False, None, "val_accuracy 0.1 at step 3 is the first to reach rung 3"),
        (
            {"rule": "asha", "bootstrap_count": 2},
            0.9,
            [0.1],
            True,
            0.9,
            "rung 3 lets nobody pass until 3 trials have reached it, and val_accuracy 0.9 at step 3 is number 2",
        ),
        (
            {"rule": "median"},
            0.71,
            [0.7, 0.8, 0.9, 0.75, 0.8],
            True,
            0.8,
            "the best val_accuracy up to step 3, 0.71, is below 0.8, the median of 5 completed trials there",
        ),
    ],
)
def test_a_verdict_reads_as_a_sentence(
    options: dict[str, Any], value: float, peers: list[float], *, stop: bool, cutoff: float | None, reason: str
) -> None:
    verdict = ask(rule_of(**options), value, peers)
    assert (verdict.stop, verdict.cutoff, verdict.reason) == (stop, cutoff, reason)
    assert (verdict.rule, verdict.step, verdict.milestone) == (options["rule"], 3, 3)
    assert (verdict.value, verdict.compared_count) == (value, len(peers))


def test_the_median_rule_speaks_of_the_best_value_so_far() -> None:
    verdict = rule_of(rule="median", n_startup_trials=1).judge(
        metric="loss",
        direction="minimize",
        milestone=2,
        step=2,
        curve={1: 0.2, 2: 0.9},
        peers=PeerList([Peer(0, 0.3, completed=True), Peer(1, 0.0, completed=False)]),
    )
    assert verdict is not None
    assert (verdict.stop, verdict.value, verdict.compared_count) == (False, 0.2, 1)


def test_a_rule_without_a_value_at_the_step_says_nothing() -> None:
    def judged(rule: Rule) -> Verdict | None:
        return rule.judge(metric="m", direction="minimize", milestone=3, step=3, curve={}, peers=PeerList())

    assert judged(rule_of(rule="asha")) is None
    assert judged(rule_of(rule="median", n_startup_trials=0)) is None


INFINITE = float("inf")


@pytest.mark.parametrize("rule", [{"rule": "asha", "reduction_factor": 2}, {"rule": "median", "n_startup_trials": 0}])
@given(value=st.sampled_from([0.5, INFINITE, -INFINITE]), others=st.lists(st.sampled_from([0.0, INFINITE, -INFINITE])))
def test_infinite_values_are_judged_and_never_become_a_cutoff(
    rule: dict[str, Any], value: float, others: list[float]
) -> None:
    verdict = rule_of(**rule).judge(
        metric="loss",
        direction="minimize",
        milestone=1,
        step=1,
        curve={1: value},
        peers=PeerList([Peer(number, other, completed=True) for number, other in enumerate(others)]),
    )
    if verdict is not None:
        assert verdict.cutoff in (None, 0.0, 0.5)
        assert not verdict.stop or value > min(others)


ASHA_OPTIONS = "min_step, reduction_factor, min_early_stopping_rate, bootstrap_count"


def complaints(make: Callable[[], object]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        make()
    return [f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in refused.value.errors()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"rule": "asha", "min_step": 0, "eta": 3},
            [
                "early_stopping.min_step: Input should be greater than or equal to 1",
                f"early_stopping.eta: unknown option; the options of asha: {ASHA_OPTIONS}",
            ],
        ),
        (
            {"rule": "mean"},
            ["early_stopping.rule: unknown rule 'mean'; available: asha, median, none"],
        ),
        ({"min_step": 1}, ["early_stopping.min_step: unknown option; the options of none: none"]),
        ("asha", ["early_stopping: must be an object such as {rule: asha}"]),
    ],
)
def test_a_wrong_rule_or_option_is_told_with_the_right_ones(options: Any, expected: list[str]) -> None:
    assert complaints(lambda: Spec.model_validate({"early_stopping": options})) == expected


@pytest.mark.parametrize("rule", PLANNED)
def test_a_rule_that_is_only_planned_says_so(rule: str) -> None:
    assert complaints(lambda: rule_of(rule=rule)) == [
        f"early_stopping.rule: '{rule}' is not available yet; available: asha, median, none"
    ]
