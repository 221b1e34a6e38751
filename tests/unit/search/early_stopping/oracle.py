"""Optuna's pruners as the oracle of early stopping."""

from typing import Any

import optuna
from hypothesis import strategies as st

from search.early_stopping import Rule
from search.problem import Direction
from tests.unit.search.early_stopping.trials import Trials

# Some values are drawn often, so that trials tie.
VALUES = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
DIRECTIONS: st.SearchStrategy[Any] = st.sampled_from(["minimize", "maximize"])
# Optuna chooses a trial's bracket by the name of the study.
STUDY = "hyperband"


# Sums of these are exact in any order.
EXACT_VALUES = st.integers(-3, 3).map(float) | st.integers(-160, 160).map(lambda one: one / 16)


def max_jump(min_step: int, reduction_factor: int) -> int:
    """If so many steps are between reports, none passes two rungs. Optuna counts both of these, ours the higher."""
    return min_step * (reduction_factor - 1)


def decisions_agree(
    data: st.DataObject,
    rule: Rule,
    pruner: optuna.pruners.BasePruner,
    direction: Direction,
    *,
    jump: int,
    by_average: bool = False,
    last_step: int | None = None,
) -> None:
    """The rule and Optuna stop the same trials at the same reports, in any order of trials and steps.

    A trial completes with its last value, or with its average. No trial reports at `last_step` or beyond, where the
    rule stops none and Optuna does.
    """
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(direction=direction, pruner=pruner, sampler=sampler, study_name=STUDY)
    ours = Trials(rule, direction)
    trials = {number: study.ask() for number in range(data.draw(st.integers(1, 8), label="trials"))}
    steps = dict.fromkeys(trials, -1)
    for _ in range(data.draw(st.integers(1, 40), label="reports")):
        if not trials:
            return
        number = data.draw(st.sampled_from(sorted(trials)), label="trial")
        steps[number] += data.draw(st.integers(1, jump), label="steps on")
        value = data.draw(EXACT_VALUES if by_average else VALUES, label="value")
        if last_step is not None and steps[number] >= last_step:
            trials.pop(number)
            continue
        trials[number].report(value, steps[number])
        stop = trials[number].should_prune()
        verdicts = ours.report(number, steps[number], value)
        assert stop == any(verdict.stop for verdict in verdicts), verdicts
        if stop:
            study.tell(trials.pop(number), state=optuna.trial.TrialState.PRUNED)
        elif data.draw(st.integers(0, 4), label="goes on") == 0:
            curve = ours.memory.curves[number].values()
            study.tell(trials.pop(number), sum(curve) / len(curve) if by_average else value)
            ours.complete(number)
