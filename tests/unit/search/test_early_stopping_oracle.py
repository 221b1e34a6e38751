"""Early stopping decides as Optuna's pruners do."""

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.early_stopping import Rule
from search.problem import Direction
from tests.conftest import examples
from tests.unit.search.test_early_stopping import Trials, rule_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

# Some values are drawn often, so that trials tie.
VALUES = st.floats(-1e3, 1e3) | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
DIRECTIONS: st.SearchStrategy[Any] = st.sampled_from(["minimize", "maximize"])
# Optuna chooses a trial's bracket by the name of the study.
STUDY = "hyperband"


def decisions_agree(
    data: st.DataObject, rule: Rule, pruner: optuna.pruners.BasePruner, direction: Direction, *, jump: int
) -> None:
    """The rule and Optuna stop the same trials at the same reports, in any order of trials and steps."""
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
        value = data.draw(VALUES, label="value")
        trials[number].report(value, steps[number])
        stop = trials[number].should_prune()
        verdicts = ours.report(number, steps[number], value)
        assert stop == any(verdict.stop for verdict in verdicts), verdicts
        if stop:
            study.tell(trials.pop(number), state=optuna.trial.TrialState.PRUNED)
        elif data.draw(st.integers(0, 4), label="goes on") == 0:
            study.tell(trials.pop(number), value)
            ours.complete(number)


@given(
    data=st.data(),
    direction=DIRECTIONS,
    min_step=st.integers(1, 3),
    reduction_factor=st.integers(2, 4),
    rate=st.integers(0, 1),
    bootstrap_count=st.sampled_from([0, 0, 2]),
)
def test_asha_stops_the_trials_that_optuna_prunes(
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
    min_step=st.integers(1, 2),
    max_step=st.integers(2, 30),
    reduction_factor=st.integers(2, 4),
    bootstrap_count=st.sampled_from([0, 0, 2]),
)
def test_hyperband_stops_the_trials_that_optuna_prunes(
    data: st.DataObject,
    direction: Direction,
    min_step: int,
    max_step: int,
    reduction_factor: int,
    bootstrap_count: int,
) -> None:
    pruner = optuna.pruners.HyperbandPruner(min_step, max_step, reduction_factor, bootstrap_count)
    rule = rule_of(
        rule="hyperband",
        min_step=min_step,
        max_step=max_step,
        reduction_factor=reduction_factor,
        bootstrap_count=bootstrap_count,
    )
    decisions_agree(data, rule, pruner, direction, jump=6)


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


WRAPPED: dict[str, tuple[dict[str, Any], optuna.pruners.BasePruner | None]] = {
    "none": ({"rule": "none"}, None),
    "asha": (
        {"rule": "asha", "reduction_factor": 2},
        optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    ),
    "median": ({"rule": "median", "n_startup_trials": 1}, optuna.pruners.MedianPruner(1)),
    "threshold": (
        {"rule": "threshold", "upper": 0.5, "interval_steps": 2},
        optuna.pruners.ThresholdPruner(upper=0.5, interval_steps=2),
    ),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
@given(
    data=st.data(),
    direction=DIRECTIONS,
    patience=st.integers(0, 3),
    min_delta=st.sampled_from([0.0, 0.0, 0.25, 10.0]),
)
@examples(50)
def test_patient_stops_the_trials_that_optuna_prunes(
    wrapped: str, data: st.DataObject, direction: Direction, patience: int, min_delta: float
) -> None:
    options, pruner = WRAPPED[wrapped]
    rule = rule_of(rule="patient", wrapped_rule=options, patience=patience, min_delta=min_delta)
    decisions_agree(data, rule, optuna.pruners.PatientPruner(pruner, patience, min_delta), direction, jump=3)


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
    value = st.integers(-3, 3) | st.floats(-10, 10)
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
            study.tell(trial, curve[max(curve)])
            ours.complete(number)
