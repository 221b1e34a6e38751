"""Which trainings count as diverged: none of ordinary problems, under whatever rule, and those whose losses jump."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from search.early_stopping import EarlyStoppingSpec, InMemoryHistory, MetricReport, Rule
from search.samplers.learning_curve import END, LearningCurve
from search.samplers.optuna.gp.curve_divergence import without_divergence
from tests.conftest import examples

TRIALS = 24
Loss = Callable[[float, float, int], float]
"""Of two params from 0 to 1, at a step."""


def distance(x: float, y: float) -> float:
    return (x - 0.3) ** 2 + (y - 0.6) ** 2


ORDINARY: dict[str, Loss] = {
    "a power": lambda x, y, step: 3.2 + 0.3 * distance(x, y) + 8 / step**0.5,
    "powers": lambda x, y, step: 3.2 + 0.3 * distance(x, y) + 8 * (0.5 + x) / step ** (0.4 + 0.3 * y),
    "a fast fall": lambda x, y, step: 0.1 + 0.2 * distance(x, y) + 1 / step,
    "decays": lambda x, y, step: 0.05 + 0.3 * distance(x, y) + 2.25 * math.exp(-step / (3 + 6 * x)),
    "accuracies": lambda x, y, step: (0.3 * distance(x, y) - 0.98) * (1 - 0.9 * math.exp(-step / (1 + 12 * x))),
    "late learners": lambda x, y, step: 0.1 + 0.3 * distance(x, y) + 2 / (1 + math.exp(min(50, step - 2 - 9 * x))),
    "overfitting": lambda x, y, step: 1 + 0.3 * distance(x, y) + 2 / step + 0.002 * x * step,
}
RULES: dict[str, Callable[[int], dict[str, Any]]] = {
    "median": lambda _steps: {"rule": "median"},
    "median after a warm-up": lambda steps: {"rule": "median", "n_warmup_steps": steps // 3},
    "percentile": lambda _steps: {"rule": "percentile", "percentile": 25},
    "patient": lambda steps: {"rule": "patient", "patience": max(1, steps // 5)},
    "asha": lambda steps: {"rule": "asha", "max_step": steps},
    "hyperband": lambda steps: {"rule": "hyperband", "max_step": steps},
    "of auto": lambda steps: {
        "rule": "hyperband",
        "max_step": steps,
        "min_step": -(-steps // 27),
        "weighted": True,
        "promote": True,
    },
}
WHOLE = {"of auto": 4}
"""So many first trials run to their ends, before `auto` chooses a rule without `extra_count`."""
MOST_FLAGGED = {"median after a warm-up": 0.6, "of auto": 1 / 6}
"""Where most trainings have reached their ends when they are first compared, one that has learned nothing is as far
above them as the loss of a whole training that has diverged."""


def places(seed: int) -> list[list[float]]:
    found: list[list[float]] = np.random.default_rng(seed).random((TRIALS, 2)).tolist()
    return found


def curve_of(family: str, x: float, y: float, steps: int) -> list[float]:
    return [ORDINARY[family](x, y, step) for step in range(1, steps + 1)]


def compared(rule: Rule, trials: Sequence[Sequence[float]], whole: int = 0) -> list[LearningCurve]:
    """What the rule compares of trials that train one after the other: the first loss in each doubling of the step.

    The first `whole` trials are stopped by nothing.
    """
    history = InMemoryHistory()
    return [
        _trained(rule, history, number, losses, bracket.number if bracket else None, is_whole=number < whole)
        for number, losses in enumerate(trials)
        for bracket in [rule.draw_bracket(number, 1, history)]
    ]


def _trained(
    rule: Rule, history: InMemoryHistory, number: int, losses: Sequence[float], bracket: int | None, *, is_whole: bool
) -> LearningCurve:
    last_step = len(losses)
    for step, loss in enumerate(losses, start=1):
        history.curves[number][step] = loss
        report = MetricReport(number, "loss", "minimize", step, loss, step - 1 or None, bracket)
        if any(verdict.stop for verdict in list(rule.decide(report, history.of(number)))) and not is_whole:
            last_step = step
            break
    found: dict[int, tuple[float, float]] = {}
    for step, (loss, _) in sorted(history.reached[number].items()):
        found.setdefault(step.bit_length(), (step, loss))
    seen = dict(found.values())
    if last_step == len(losses):
        history.complete(rule, number, losses[-1])
        seen[END] = losses[-1]
    return LearningCurve(seen or {last_step: losses[last_step - 1]}, last_step)


def rule_of(name: str, steps: int) -> Rule:
    rule: Rule = TypeAdapter(EarlyStoppingSpec).validate_python(RULES[name](steps))
    return rule


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", ORDINARY)
@examples(5)
@given(steps=st.sampled_from([9, 27, 100, 300]), seed=st.integers(0, 1000))
def test_no_ordinary_training_counts_as_diverged(family: str, rule: str, steps: int, seed: int) -> None:
    trials = [curve_of(family, x, y, steps) for x, y in places(seed)]
    curves = compared(rule_of(rule, steps), trials, WHOLE.get(rule, 0))
    for count in (10, TRIALS):
        _, has_diverged = without_divergence(curves[:count])
        assert has_diverged.sum() <= MOST_FLAGGED.get(rule, 0) * count


@pytest.mark.slow
@pytest.mark.parametrize("jump", [200.0, 1e9, 1e300, math.inf])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", ORDINARY)
def test_a_training_whose_loss_jumps_has_diverged(family: str, rule: str, jump: float) -> None:
    """At a step that differs, of the first ones; further up, `asha` would stop such trials before."""
    steps, limit = 27, 0.75
    trials = [
        [jump if x > limit and step > number % 3 else loss for step, loss in enumerate(curve, start=1)]
        for number, (x, y) in enumerate(places(seed=1))
        for curve in [curve_of(family, x, y, steps)]
    ]
    curves = compared(rule_of(rule, steps), trials, WHOLE.get(rule, 0))
    kept, has_diverged = without_divergence(curves)
    jumped = [curve.losses[max(curve.losses)] == jump for curve in curves]
    assert any(jumped)
    assert [bool(has) for has, is_one in zip(has_diverged, jumped, strict=True) if is_one] == [True] * sum(jumped)
    assert jump not in {loss for curve in kept for loss in curve.losses.values()}


def flags(*losses: Mapping[float, float]) -> list[bool]:
    return [bool(one) for one in without_divergence([LearningCurve(one) for one in losses])[1]]


FELL: list[Mapping[float, float]] = [{1: 1.0, 2: 0.5, END: 0.2}] * 4


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({1: 1.0, 2: 3.0}, True),
        ({1: 1.0, 2: 2.0}, False),
        ({2: 3.0}, True),
        ({1: 3.2, 2: 4.0}, False),
        ({1: 6.0}, True),
        ({1: 1.0, 2: 9.0, END: 0.3}, False),
        ({1: 1.0, 2: math.inf}, True),
        ({END: math.inf}, True),
    ],
    ids=[
        "rises far",
        "rises a little",
        "is compared later, and far above",
        "begins far above and rises a little",
        "begins too far above",
        "jumps and recovers",
        "becomes infinite",
        "reports no number",
    ],
)
def test_a_trial_has_diverged_if_its_last_loss_is_far_above_the_beginnings(
    losses: dict[float, float], *, expected: bool
) -> None:
    assert flags(*FELL, losses) == [False] * 4 + [expected]


def test_the_losses_of_a_jump_do_not_count_although_the_training_recovers() -> None:
    kept, _ = without_divergence([LearningCurve(one) for one in [*FELL, {1: 1.0, 2: 9.0, END: 0.3}]])
    assert kept[-1].losses == {1: 1.0, END: 0.3}


def test_a_loss_that_rises_in_every_training_is_no_sign_of_divergence() -> None:
    assert not any(flags(*({1.0: 0.5, 2.0: 0.4 + trial / 100, 3.0: 1e9} for trial in range(12))))


@pytest.mark.parametrize("losses", [[-1e308, 0.0, 1e308, 1.7e308], [0.0] * 4, [1e-320] * 4])
def test_losses_at_the_ends_of_the_floats_are_no_sign_of_divergence(losses: list[float]) -> None:
    assert not any(flags(*({1.0: loss, 2.0: loss} for loss in losses)))


def test_without_any_number_all_have_diverged() -> None:
    assert flags({END: math.inf}, {1: math.inf}) == [True, True]
