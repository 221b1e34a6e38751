"""The curve score: one scale for running, stopped and completed trials."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.curve_score import COMPLETED, Curve, best_first, curve_of, rung_of, scores
from search.problem import Observation, Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study, StudyView, propose
from tests.conftest import examples

PROBLEM = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("minimize",), prunes=True)
MAXIMIZED = Problem(PROBLEM.space, ("maximize",), prunes=True)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Rungs 1, 2, 3 and the end; like trials of some brackets, it may lack the first ones."""
    first, last = draw(st.integers(0, 2)), draw(st.integers(0, 4))
    losses = st.integers(0, 6).map(float)
    return {(1, 2, 3, COMPLETED)[index]: draw(losses) for index in range(first, last)}


def ranked(trials: Sequence[Curve], most: int | None = None) -> list[int]:
    rungs = sorted({rung for curve in trials for rung in curve}, reverse=True)
    columns = (np.array([curve.get(rung, math.nan) for curve in trials]) for rung in rungs)
    return [int(index) for index in best_first(columns, len(trials), most)]


def inserted_one_by_one(trials: Sequence[Curve]) -> list[int]:
    """The definition: from the top rung down, each trial after the last of those that went further and were as good.

    Trials that tie stay beside each other.
    """
    order: list[int] = []

    def tied_with(one: int) -> list[int]:
        last = max(trials[one])
        return [other for other in order if max(trials[other]) == last and trials[other][last] == trials[one][last]]

    for rung in sorted({rung for curve in trials for rung in curve}, reverse=True):
        further = [index for index in order if rung in trials[index]]
        newcomers = [index for index, curve in enumerate(trials) if curve and max(curve) == rung]
        placed = list(order)
        for index in sorted(newcomers, key=lambda one: (trials[one][rung], one), reverse=True):
            if not further:
                position = len(order)
            elif as_good := [one for one in further if trials[one][rung] <= trials[index][rung]]:
                position = 1 + max(order.index(tied) for one in as_good for tied in tied_with(one))
            else:
                position = min(order.index(tied) for one in further for tied in tied_with(one))
            placed.insert(position, index)
        order = placed
    return order


@given(st.lists(curves(), max_size=20))
def test_trials_are_ranked_as_defined(trials: list[Curve]) -> None:
    assert ranked(trials) == inserted_one_by_one(trials)


@given(st.lists(curves(), max_size=20), st.integers(0, 20))
def test_the_first_ones_alone_are_those_of_the_whole_ranking(trials: list[Curve], most: int) -> None:
    assert ranked(trials, most) == ranked(trials)[:most]


@given(st.lists(curves(), max_size=20))
def test_a_trial_that_survived_a_rung_ranks_before_one_that_stopped_there_and_was_not_better(
    trials: list[Curve],
) -> None:
    found = scores(trials)
    for survivor, score in zip(trials, found, strict=True):
        for stopped, other in zip(trials, found, strict=True):
            if stopped and survivor and max(survivor) > (last := max(stopped)) and last in survivor:
                assert survivor[last] > stopped[last] or score > other


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=30))
def test_without_rungs_the_order_is_that_of_the_values(values: list[float]) -> None:
    found = scores([{COMPLETED: value} for value in values])
    for (one, score), (other, next_score) in pairwise(sorted(zip(values, found, strict=True))):
        assert score == pytest.approx(next_score) if one == other else score > next_score


@given(st.lists(curves(), min_size=2, max_size=20), st.randoms())
def test_scores_are_shares_of_the_other_trials_in_any_order(trials: list[Curve], random: object) -> None:
    found = scores(trials)
    assert ((found >= 0) & (found <= 1)).all()
    assert found.mean() == pytest.approx(0.5)
    worst = [score for curve, score in zip(trials, found, strict=True) if not curve]
    assert all(score == found.min() for score in worst)


@given(st.lists(curves(), max_size=20), st.data())
def test_scores_do_not_depend_on_the_order_of_the_trials(trials: list[Curve], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(trials))))
    assert scores([trials[index] for index in order]).tolist() == scores(trials)[list(order)].tolist()


def test_trials_that_tie_have_the_same_score_whatever_they_had_shown_before() -> None:
    first, second, stopped = {1: 0.1, COMPLETED: 1.0}, {1: 0.9, COMPLETED: 1.0}, {1: 0.5}
    assert scores([first, second, stopped]).tolist() == scores([second, first, stopped]).tolist() == [0.75, 0.75, 0.0]


def test_a_lucky_survivor_ranks_by_the_last_rung_and_not_by_its_luck() -> None:
    """The first trial at a rung always passes it. A better one that was stopped later ranks before it."""
    first, best, stopped = {1: 0.9, 5: 0.9, COMPLETED: 0.9}, {1: 0.1, 5: 0.1, COMPLETED: 0.1}, {1: 0.5}
    assert ranked([first, best, stopped]) == [1, 2, 0]


def test_without_a_common_rung_the_trial_that_went_further_ranks_first() -> None:
    assert ranked([{1: 0.1}, {5: 0.9}]) == [1, 0]


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_rungs_of_successive_halving_stay_apart(factor: int) -> None:
    for first in (1, 2, 7):
        steps = [first * factor**power for power in range(10)]
        assert len({rung_of(step) for step in steps}) == len(steps)
    assert [rung_of(step) for step in (0, 1, 2)] == [0, 1, 5]


def seen(status: object, **known: object) -> Observation:
    return Observation(0, {"x": 0.5}, status, **known)  # type: ignore[arg-type]


def test_what_a_trial_has_shown() -> None:
    rungs = ((1, 0.4), (3, 0.3))
    shown = {1: 0.4, rung_of(3): 0.3}
    assert curve_of(PROBLEM, seen("running", rungs=rungs)) == shown
    assert curve_of(PROBLEM, seen("pruned", rungs=rungs, last_step=3, last_value=9.0)) == shown
    assert curve_of(PROBLEM, seen("completed", values=(0.2,), rungs=rungs)) == {**shown, COMPLETED: 0.2}
    assert curve_of(MAXIMIZED, seen("completed", values=(0.2,))) == {COMPLETED: -0.2}
    assert curve_of(MAXIMIZED, seen("stopped", last_step=3, last_value=0.7)) == {rung_of(3): -0.7}


def test_a_trial_that_diverged_or_was_pruned_without_a_report_is_one_of_the_worst() -> None:
    assert curve_of(PROBLEM, seen("diverged", rungs=((1, 0.0),))) == {}
    assert curve_of(PROBLEM, seen("pruned")) == {}
    assert curve_of(PROBLEM, seen("completed", values=(math.nan,))) == {COMPLETED: math.inf}


def test_nothing_is_known_of_a_trial_that_failed_or_has_not_reached_a_rung() -> None:
    assert curve_of(PROBLEM, seen("failed", rungs=((1, 0.0),))) is None
    assert curve_of(PROBLEM, seen("stopped")) is None
    assert curve_of(PROBLEM, seen("running")) is None
    assert curve_of(PROBLEM, seen("running", rungs=((1, 0.0),))) is not None


def test_a_running_trial_under_constraints_has_shown_nothing_because_its_feasibility_may_change_with_each_report() -> (
    None
):
    for constraint in (math.inf, 1.0, -1.0):
        assert curve_of(PROBLEM, seen("running", rungs=((1, 0.0),), constraints=(constraint,))) is None


def test_the_last_report_of_a_running_trial_does_not_count() -> None:
    assert curve_of(PROBLEM, seen("running", last_step=2, last_value=0.4)) is None


OPTIONS = {
    "tpe": {"n_startup_trials": 4},
    "cmaes": {"popsize": 4},
    "nsga2": {"population_size": 6, "mutation_prob": 0.1},
}


def study_of(sampler: str, *, curve_score: bool | None = True) -> Study:
    return Study(PROBLEM, SamplerSpec(sampler=sampler, options=OPTIONS.get(sampler, {}), curve_score=curve_score), 7)


def at(number: int, x: float, *rungs: tuple[int, float], status: object = "pruned") -> Observation:
    return Observation(number, {"x": x}, status, rungs=rungs)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampler", OPTIONS)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_sampler_searches_where_trials_were_good_before_they_were_stopped(sampler: str) -> None:
    """No trial has completed. Best is x = 0.2; the last rung decides, and values at other rungs are not comparable."""
    view = StudyView(study_of(sampler))
    for number in range(60):
        x = float(view.propose([], number)["x"])  # type: ignore[arg-type]
        loss = abs(x - 0.2)
        rungs = ((1, loss), (3, 5 + loss)) if loss < 0.1 else ((1, loss),)
        view.update([at(number, x, *rungs)])
    later = [float(view.propose([], number)["x"]) for number in range(60, 80)]  # type: ignore[arg-type]
    assert np.median([abs(x - 0.2) for x in later]) < 0.15


def test_a_running_trial_counts_by_its_last_rung_and_not_as_bad() -> None:
    """Optuna's liar treats it as one of the worst: the search then avoids the best place while it trains."""
    others = [at(number, 0.4 + number / 40, (1, 0.4 + number / 40)) for number in range(20)]
    stuck = [at(20 + number, 0.1 + number / 200, (1, number / 200), status="running") for number in range(4)]

    def near(study: Study) -> int:
        found = [propose(study, [*others, *stuck], number)["x"] for number in range(24, 64)]
        return sum(float(x) < 0.25 for x in found)  # type: ignore[arg-type]

    assert near(study_of("tpe")) > 20
    assert near(study_of("tpe", curve_score=False)) < 10


def test_rungs_count_towards_the_start_of_the_model() -> None:
    running = [at(number, number / 10, (1, number / 10), status="running") for number in range(5)]
    waiting = [at(number, number / 10, status="running") for number in range(5)]
    assert propose(study_of("tpe"), running, 9) != propose(study_of("random"), [], 9)
    assert propose(study_of("tpe"), waiting, 9) == propose(study_of("tpe"), [], 9)


@pytest.mark.parametrize(
    "changed",
    [
        Problem(PROBLEM.space, ("minimize",)),
        Problem(PROBLEM.space, ("minimize",) * 2, prunes=True),
        Problem(PROBLEM.space, ("minimize",), prunes=True, population=True),
    ],
)
def test_without_early_stopping_or_with_several_objectives_rungs_change_nothing(changed: Problem) -> None:
    study = Study(changed, SamplerSpec(options={"n_startup_trials": 4}), 7)
    count = len(changed.directions)
    history = [Observation(n, {"x": n / 10}, "completed", (n / 10,) * count) for n in range(8)]
    running = Observation(8, {"x": 0.0}, "running")
    with_rungs = Observation(8, {"x": 0.0}, "running", rungs=((1, 0.0),))
    assert propose(study, [*history, with_rungs], 9) == propose(study, [*history, running], 9)


@given(st.data())
@examples(30)
def test_the_order_in_which_trials_are_learned_does_not_matter(data: st.DataObject) -> None:
    history = [
        at(
            n,
            n / 20,
            *((3**k, data.draw(st.floats(0, 1))) for k in range(data.draw(st.integers(0, 3)))),
            status=data.draw(st.sampled_from(["running", "pruned", "diverged"])),
        )
        for n in range(12)
    ]
    assert propose(study_of("tpe"), data.draw(st.permutations(history)), 12) == propose(study_of("tpe"), history, 12)


@pytest.mark.parametrize(
    ("sampler", "parallelism", "asked", "used"),
    [
        ("tpe", 4, None, True),
        ("tpe", 16, None, False),
        ("tpe", 16, True, True),
        ("tpe", 1, False, False),
        ("gp", 1, None, True),
        ("cmaes", 1, True, True),
        ("auto", 4, None, True),
    ],
)
def test_a_sampler_uses_the_score_where_it_gains_unless_the_specification_says_otherwise(
    sampler: str, parallelism: int, asked: object, used: object
) -> None:
    problem = Problem(PROBLEM.space, ("minimize",), prunes=True, parallelism=parallelism)
    assert StudyView(Study(problem, SamplerSpec(sampler=sampler, curve_score=asked), 7)).scores_curves is used
