"""The median and percentile rules stop the trials that Optuna prunes."""

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
    percentile=st.sampled_from([None, 0, 10, 25, 33.3, 50, 75, 100]) | st.floats(0, 100),
    startup=st.integers(0, 3),
    warmup=st.integers(0, 4),
    interval=st.integers(1, 4),
    fewest=st.integers(1, 2),
)
def test_median_and_percentile_stop_the_trials_that_optuna_prunes(
    data: st.DataObject,
    direction: Direction,
    percentile: float | None,
    startup: int,
    warmup: int,
    interval: int,
    fewest: int,
) -> None:
    pruner = (
        optuna.pruners.MedianPruner(startup, warmup, interval, n_min_trials=fewest)
        if percentile is None
        else optuna.pruners.PercentilePruner(percentile, startup, warmup, interval, n_min_trials=fewest)
    )
    options = {"rule": "median"} if percentile is None else {"rule": "percentile", "percentile": percentile}
    rule = rule_of(
        **options,
        n_startup_trials=startup,
        n_warmup_steps=warmup,
        interval_steps=interval,
        n_min_trials=fewest,
    )
    decisions_agree(data, rule, pruner, direction, jump=2)


def test_the_median_rule_compares_the_best_value_so_far_with_completed_trials_only() -> None:
    trials = Trials(rule_of(rule="median", n_startup_trials=1), "minimize", "loss")
    trials.ran(0, [0.3, 0.3])
    trials.report(1, 2, 0.0)
    trials.report(2, 1, 0.2)
    [verdict] = trials.report(2, 2, 0.9)
    assert (verdict.stop, verdict.value, verdict.compared_with) == (False, 0.2, (0,))
