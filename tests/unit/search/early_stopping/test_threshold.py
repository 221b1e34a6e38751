"""The threshold rule stops the trials that Optuna prunes."""

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Direction
from tests.unit.search.early_stopping.oracle import DIRECTIONS, decisions_agree
from tests.unit.search.early_stopping.trials import Trials, rule_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@given(
    data=st.data(),
    direction=DIRECTIONS,
    bounds=st.tuples(st.none() | st.floats(-500, 0.5), st.none() | st.floats(0.5, 500)).filter(any),
    warmup=st.integers(0, 4),
    interval=st.integers(1, 4),
)
def test_threshold_stops_the_trials_that_optuna_prunes(
    data: st.DataObject,
    direction: Direction,
    bounds: tuple[float | None, float | None],
    warmup: int,
    interval: int,
) -> None:
    lower, upper = bounds
    pruner = optuna.pruners.ThresholdPruner(lower, upper, warmup, interval)
    rule = rule_of(rule="threshold", lower=lower, upper=upper, n_warmup_steps=warmup, interval_steps=interval)
    decisions_agree(data, rule, pruner, direction, jump=2)


def test_a_threshold_names_the_violated_bound() -> None:
    trials = Trials(rule_of(rule="threshold", lower=0.2, upper=0.8))
    verdicts = [trials.report(0, step, value)[0] for step, value in enumerate([0.5, 0.75, 0.9, 0.1])]
    assert [(verdict.stop, verdict.cutoff) for verdict in verdicts] == [
        (False, 0.2),
        (False, 0.8),
        (True, 0.8),
        (True, 0.2),
    ]
    assert verdicts[2].reason == "val_accuracy 0.9 at step 2 is above 0.8, the upper bound"
