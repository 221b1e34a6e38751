"""The Wilcoxon rule stops the trials that Optuna prunes."""

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Direction
from tests.conftest import examples
from tests.unit.search.early_stopping.oracle import DIRECTIONS
from tests.unit.search.early_stopping.trials import Trials, rule_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@given(
    data=st.data(),
    direction=DIRECTIONS,
    p_threshold=st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]),
    startup=st.integers(0, 4),
)
@examples(50)
def test_wilcoxon_stops_the_trials_that_optuna_prunes(
    data: st.DataObject, direction: Direction, p_threshold: float, startup: int
) -> None:
    """Each trial measures the cases in its own order. Of several best trials, the oldest is compared with."""
    pruner = optuna.pruners.WilcoxonPruner(p_threshold=p_threshold, n_startup_steps=startup)
    study = optuna.create_study(direction=direction, pruner=pruner)
    ours = Trials(rule_of(rule="wilcoxon", p_threshold=p_threshold, n_startup_steps=startup), direction)
    cases = list(range(data.draw(st.integers(1, 7), label="cases")))
    value = st.integers(-3, 3) | st.integers(-160, 160).map(lambda one: one / 16)  # their sums are exact in any order
    for number in range(data.draw(st.integers(2, 4), label="trials")):
        trial = study.ask()
        stop = False
        order = data.draw(st.permutations(cases), label="order")
        for step in order:
            reported = float(data.draw(value, label="value"))
            trial.report(reported, step)
            stop = trial.should_prune()
            assert stop == any(verdict.stop for verdict in ours.report(number, step, reported))
            if stop:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        if not stop:
            curve = ours.memory.curves[number]
            study.tell(trial, sum(curve.values()) / len(curve))
            ours.complete(number)


def test_the_wilcoxon_rule_names_the_best_trial_and_the_p_value() -> None:
    trials = Trials(rule_of(rule="wilcoxon"))
    trials.ran(0, [0.6] * 8)
    trials.ran(1, [0.9 + step / 100 for step in range(8)])
    for step in (3, 1, 5, 2):
        trials.report(2, step, 0.5 - step / 50)
    [verdict] = trials.report(2, 4, 0.4)
    assert (verdict.stop, verdict.compared_with, verdict.compared_count) == (True, (1,), 1)
    assert "over 5 shared steps" in verdict.reason
    assert "that of trial 1, the best trial so far (p = 0.0312, below p_threshold 0.1: such" in verdict.reason


def test_the_best_trial_is_that_with_the_best_average_and_not_with_the_best_last_case() -> None:
    trials = Trials(rule_of(rule="wilcoxon"), "minimize", "loss")
    trials.ran(0, [0.1, 0.1, 0.1, 0.1, 0.4])  # on average 0.16
    trials.ran(1, [1.0, 1.1, 1.0, 1.1, 0.05])  # on average 0.85, with a lucky last case
    said = trials.ran(2, [0.5, 0.6, 0.5, 0.6])
    assert {verdict.compared_with for verdict in said} == {(0,)}
    assert [verdict.stop for verdict in said] == [False, False, True]  # of steps 2, 3 and 4: p is 1/4, 1/8, 1/16


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_of_the_best_trials_that_tie_the_oldest_is_compared_with(direction: Direction) -> None:
    trials = Trials(rule_of(rule="wilcoxon"), direction)
    for number in range(3):
        trials.ran(number, [[0.5, 0.7, 0.1], [0.7, 0.1, 0.5], [0.1, 0.5, 0.7]][number])
    trials.report(3, 1, 0.5)
    [verdict] = trials.report(3, 2, 0.6)
    assert verdict.compared_with == (0,)
