"""`gp` with early stopping: a model of learning curves."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Observation, Problem, Status
from search.samplers import SamplerSpec
from search.samplers.learning_curve import END, LearningCurve
from search.samplers.optuna.gp.curve_points import MAX_POINTS, points_of
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conftest import examples

pytestmark = pytest.mark.slow  # torch takes seconds

LINE = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
BEST = 0.7
STEPS = (1, 3, 9, 27)


def study_of(space: Space = LINE, **facts: Any) -> Study:
    problem = Problem(space, ("minimize",), prunes=True, **facts)
    return Study(problem, SamplerSpec(sampler="gp", options={"n_startup_trials": 4}), 7)


def trained(number: int, params: Params, last_step: int, status: Status = "pruned", best: float = BEST) -> Observation:
    """The losses of all trials fall from step to step, by the same for all."""
    x = params["x"]
    assert isinstance(x, float)
    rungs = tuple((step, (x - best) ** 2 + 1 / step) for step in STEPS if step <= last_step)
    values = ((x - best) ** 2,) if status == "completed" else None
    return Observation(number, params, status, values, last_step=last_step, last_value=rungs[-1][1], rungs=rungs)


def evenly(count: int, last_step: int, **options: Any) -> list[Observation]:
    return [trained(number, {"x": number / (count - 1)}, last_step, **options) for number in range(count)]


def proposed(study: Study, history: Sequence[Observation], number: int = 100) -> float:
    return float(str(propose(study, history, number)["x"]))


def test_it_learns_from_trials_that_were_stopped_early() -> None:
    assert abs(proposed(study_of(), evenly(9, last_step=3)) - BEST) < 0.1


def test_a_good_value_at_a_later_step_is_no_better_than_the_same_progress_at_an_earlier_one() -> None:
    """The trials far from the best went further, so that their losses are the least."""
    history = [replace(trained(n, {"x": n / 8}, 27 if n < 3 else 3), number=n) for n in range(9)]
    assert min(history, key=lambda one: one.last_value or 0).number < 3
    assert proposed(study_of(), history) > 0.5


def test_it_learns_from_long_curves_that_fall_steeply_and_then_no_more() -> None:
    """A rule that compares at every step sees such curves, of which the first losses are far above most."""
    history = [
        Observation(number, {"x": x}, "completed", (losses[-1],), rungs=tuple(enumerate(losses, start=1)))
        for number, x in enumerate(number / 11 for number in range(12))
        for losses in [[0.1 * (x - BEST) ** 2 + 2 / step for step in range(1, 65)]]
    ]
    assert abs(proposed(study_of(), history) - BEST) < 0.1


@pytest.mark.parametrize("losses", [[0.5] * 3, [math.nan] * 3], ids=["equal", "no number"])
def test_a_draw_because_the_curves_tell_nothing_is_not_said_to_come_from_the_model(losses: list[float]) -> None:
    view = StudyView(study_of())
    for number in range(5):
        assert view.source(number) == "start_up"
        view.update([Observation(number, {"x": number / 5}, "pruned", rungs=tuple(enumerate(losses, start=1)))])
    assert view.source(5) == "start_up"
    view.update([Observation(5, {"x": 0.9}, "pruned", rungs=((1, 1.0), (2, 0.7)))])
    assert view.source(6) == "model"


def test_it_counts_what_running_trials_have_shown() -> None:
    assert abs(proposed(study_of(), evenly(9, last_step=3, status="running")) - BEST) < 0.2


def test_it_does_not_repeat_what_was_stopped_although_its_end_stays_unknown() -> None:
    """Otherwise it would propose the corners of the space again and again."""
    space = Space.model_validate({name: {"type": "float", "low": 0, "high": 1} for name in "xy"})
    view, seen = StudyView(study_of(space)), dict[int, list[float]]()
    proposals: list[Params] = []
    for number in range(24):
        params = view.propose([], number)
        x, y = float(str(params["x"])), float(str(params["y"]))
        proposals.append(params)
        result, rungs = (x - 0.5) ** 2 * 4 + (y - 0.5) ** 2 * 4, list[tuple[int, float]]()
        for step in STEPS[:3]:
            losses = seen.setdefault(step, [])
            rungs.append((step, result + 1 / step))
            losses.append(rungs[-1][1])
            if number > 3 and sorted(losses).index(losses[-1]) > len(losses) / 3:
                view.update([Observation(number, params, "pruned", rungs=tuple(rungs))])
                break
        else:
            view.update([Observation(number, params, "completed", (result,), last_step=27, rungs=tuple(rungs))])
    assert len({tuple(one.values()) for one in proposals}) == len(proposals)


def test_more_is_better_where_the_experiment_maximizes() -> None:
    study = study_of()
    study = replace(study, problem=replace(study.problem, directions=("maximize",)))
    found = [
        replace(one, last_value=-(one.last_value or 0)) for one in evenly(9, last_step=9)
    ]  # the losses of rungs are negated already
    assert abs(proposed(study, found) - BEST) < 0.1


def test_where_trials_are_compared_by_another_metric_it_learns_from_results_alone() -> None:
    history = evenly(9, last_step=3)
    study = study_of(compares_objective=False)
    assert StudyView(study, history).source(100) == "start_up"
    assert StudyView(study_of(), history).source(100) == "model"


@examples(10)
@given(st.data())
def test_a_proposal_is_a_function_of_the_history_in_any_order(data: st.DataObject) -> None:
    statuses: Sequence[Status] = ("pruned", "running", "completed", "diverged", "stopped", "failed")
    drawn = st.tuples(st.floats(0, 1), st.sampled_from(STEPS), st.sampled_from(statuses))
    history = [
        trained(number, {"x": x}, step, status)
        for number, (x, step, status) in enumerate(data.draw(st.lists(drawn, min_size=6, max_size=10)))
    ]
    first = proposed(study_of(), history)
    assert 0 <= first <= 1
    assert proposed(study_of(), data.draw(st.permutations(history))) == first
    view = StudyView(study_of(), [replace(one, status="running", rungs=(), values=None) for one in history])
    assert view.propose(history, 100)["x"] == first


@pytest.mark.parametrize(
    "losses",
    [[0.5] * 8, [math.inf] * 8, [1e308, -1e308] * 4, [0.0] * 8, [1.0, math.inf] * 4, [1e-320] * 8],
    ids=["equal", "infinite", "huge", "zero", "some infinite", "tiny"],
)
def test_it_proposes_whatever_the_losses_are(losses: list[float]) -> None:
    history = [
        Observation(number, {"x": number / 8}, "pruned", rungs=((1, loss), (3, loss)))
        for number, loss in enumerate(losses)
    ]
    assert 0 <= proposed(study_of(), history) <= 1


def test_it_proposes_where_all_trials_began_well_and_then_diverged() -> None:
    rungs = ((1, 0.5), (2, 0.4), (3, 1e9))
    history = [Observation(number, {"x": number / 12}, "pruned", rungs=rungs) for number in range(12)]
    assert 0 <= proposed(study_of(), history) <= 1


def test_it_knows_all_trials_that_diverged_although_the_model_of_losses_has_only_some_of_the_points() -> None:
    """Beyond the cliff the losses would be the least."""
    cliff, count = 0.6, 2 * MAX_POINTS
    history = []
    for number in range(count):
        x = number / count
        status: Status = "diverged" if x > cliff else "pruned"
        history.append(replace(trained(number, {"x": x}, 3, best=1.0), status=status))
    assert all(proposed(study_of(), history, number) < cliff + 0.02 for number in range(count, count + 3))


@pytest.mark.parametrize("factor", [1e6, 1e170, 1e300])
def test_trials_that_almost_diverge_do_not_hide_the_differences_of_the_others(factor: float) -> None:
    """Their losses are so many times as large."""
    history = [
        replace(one, rungs=tuple((step, factor * loss) for step, loss in one.rungs)) if one.number < 3 else one
        for one in evenly(17, last_step=9)
    ]
    assert abs(proposed(study_of(), history) - BEST) < 0.1


@given(st.lists(st.lists(st.floats(allow_nan=False), min_size=1, max_size=12), min_size=1, max_size=400))
def test_the_model_has_a_limited_number_of_points_and_among_them_the_best(losses: list[list[float]]) -> None:
    curves = [LearningCurve({2.0**step: loss for step, loss in enumerate(one)}) for one in losses]
    points = points_of(curves)
    assert len(points) <= MAX_POINTS
    assert min(loss for _, _, loss in points) <= min(curve.losses[max(curve.losses)] for curve in curves)


def test_of_long_curves_the_last_points_are_kept() -> None:
    curves = [LearningCurve({1: 1.0, 2: 1.0, 4: 1.0, END: 1.0}) for _ in range(MAX_POINTS // 2)]
    assert {step for _, step, _ in points_of(curves)} == {4, END}
