"""A proposal is a function of the study, the history and the trial's number, with Optuna as the oracle."""

from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from search.problem import Observation, Problem, SpaceExhausted
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.space.space import Params, Space
from search.study import Study, StudyView, propose
from tests.conftest import examples
from tests.unit.search.conftest import outcome

# Some options are still marked as experimental in Optuna.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

SAMPLERS = [
    SamplerSpec(),
    SamplerSpec(options={"n_startup_trials": 0, "multivariate": False}),
    SamplerSpec(options={"n_startup_trials": 2, "group": True, "constant_liar": False}),
    SamplerSpec(sampler="random"),
    SamplerSpec(sampler="grid"),
]

SPACE = Space.model_validate(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "hidden": {"type": "int", "low": 16, "high": 256, "step": 16},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"optimizer": "sgd"}},
    }
)


def suggested(trial: optuna.Trial) -> Params:
    """SPACE as Optuna's suggest calls."""
    params: Params = {
        "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True),
        "hidden": trial.suggest_int("hidden", 16, 256, step=16),
        "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adamw"]),
    }
    if params["optimizer"] == "sgd":
        params["momentum"] = trial.suggest_float("momentum", 0.0, 0.99)
    return params


DISTRIBUTIONS: dict[str, optuna.distributions.BaseDistribution] = {
    "lr": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
    "hidden": optuna.distributions.IntDistribution(16, 256, step=16),
    "optimizer": optuna.distributions.CategoricalDistribution(["sgd", "adamw"]),
    "momentum": optuna.distributions.FloatDistribution(0.0, 0.99),
}


def frozen_trial_of(observation: Observation) -> optuna.trial.FrozenTrial:
    """The observation as a trial of Optuna."""
    reported = observation.last_step is not None and observation.last_value is not None
    curve: Any = {observation.last_step: observation.last_value} if reported else {}
    states = {
        "completed": TrialState.COMPLETE,
        "pruned": TrialState.PRUNED,
        "diverged": TrialState.PRUNED,
        "stopped": TrialState.PRUNED if reported else TrialState.FAIL,
        "failed": TrialState.FAIL,
        "running": TrialState.RUNNING,
    }
    return optuna.trial.create_trial(
        state=states[observation.status],
        values=observation.values,
        params=observation.params,
        distributions={name: DISTRIBUTIONS[name] for name in observation.params},
        intermediate_values={} if observation.status == "diverged" else curve,
    )


def study_of(
    space: Space = SPACE, sampler: SamplerSpec | None = None, direction: Any = "minimize", seed: int = 7
) -> Study:
    return Study(Problem(space, (direction,)), sampler or SamplerSpec(), seed)


def completed(number: int, params: Params, value: float) -> Observation:
    return Observation(number, params, "completed", (value,), 1, value)


def run(study: Study, count: int, objective: Any) -> list[Observation]:
    history: list[Observation] = []
    for number in range(count):
        params = propose(study, history, number)
        history.append(completed(number, params, objective(params)))
    return history


@given(data=st.data(), sampler=st.sampled_from(SAMPLERS), direction=st.sampled_from(["minimize", "maximize"]))
def test_a_proposal_belongs_to_any_space_and_is_the_same_for_the_same_history(
    data: st.DataObject, draws: Any, sampler: SamplerSpec, direction: Any
) -> None:
    space = data.draw(draws.spaces(finite=True if sampler.sampler == "grid" else None))
    history = data.draw(draws.histories(space))
    study = study_of(space, sampler, direction, seed=data.draw(st.integers(0, 2**32 - 1)))
    assert sampler.mistakes_with(study.problem) == []
    try:
        params = propose(study, history, 41)
    except SpaceExhausted:
        assert len({repr(observation.params) for observation in history}) >= (space.size() or 0)
        return
    assert space.mistakes_in(params) == []
    assert propose(study, data.draw(st.permutations(history)), 41) == params


@given(data=st.data(), sampler=st.sampled_from(SAMPLERS))
@examples(60)
def test_a_view_that_is_updated_proposes_what_the_pure_function_does(
    data: st.DataObject, draws: Any, sampler: SamplerSpec
) -> None:
    space = data.draw(draws.spaces(finite=True if sampler.sampler == "grid" else None))
    study = study_of(space, sampler)
    view = StudyView(study)
    known: dict[int, Observation] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        changes = data.draw(draws.histories(space, max_size=8, numbers=12))
        known |= {observation.number: observation for observation in changes}
        number = data.draw(st.integers(0, 14))
        assert outcome(view.propose, changes, number) == outcome(propose, study, list(known.values()), number)


@given(data=st.data(), direction=st.sampled_from(["minimize", "maximize"]), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("options", [{}, {"n_startup_trials": 3, "multivariate": False}, {"group": True}])
@examples(30)
def test_tpe_proposes_what_a_study_of_optuna_with_the_same_seed_does(
    data: st.DataObject, draws: Any, direction: Any, seed: int, options: dict[str, Any]
) -> None:
    size = data.draw(st.integers(0, 25))
    history = [data.draw(draws.observations(SPACE, number)) for number in range(size)]
    grouped: dict[str, Any] = {"multivariate": True} if "group" in options else {}
    optuna_study = optuna.create_study(
        direction=direction, sampler=optuna.samplers.TPESampler(seed=derived_seed(seed, size), **options, **grouped)
    )
    optuna_study.add_trials([frozen_trial_of(observation) for observation in history])
    study = study_of(sampler=SamplerSpec(options=options), direction=direction, seed=seed)
    assert propose(study, history, size) == suggested(optuna_study.ask())


@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, 10_000))
@examples(30)
def test_random_proposes_what_a_study_of_optuna_with_the_same_seed_does(seed: int, number: int) -> None:
    optuna_study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=derived_seed(seed, number)))
    study = study_of(sampler=SamplerSpec(sampler="random"), seed=seed)
    assert propose(study, [], number) == suggested(optuna_study.ask())


def test_a_search_rebuilt_after_a_restart_repeats_no_random_numbers() -> None:
    study = study_of(sampler=SamplerSpec(sampler="random"))
    assert len({repr(propose(study, [], number)) for number in range(50)}) == 50


def test_the_order_of_a_history_does_not_matter_even_among_ties() -> None:
    history = [completed(number, propose(study_of(), [], number), 1.0) for number in range(30)]
    assert propose(study_of(), history[::-1], 30) == propose(study_of(), history, 30)


def test_steps_are_proposed_in_decimal() -> None:
    space = Space.model_validate({"p": {"type": "float", "low": 0, "high": 1, "step": 0.1}})
    found = {propose(study_of(space), [], number)["p"] for number in range(100)}
    assert found == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}


@pytest.mark.parametrize(
    "extreme",
    [
        {"type": "float", "low": -8e307, "high": 8e307},
        {"type": "float", "low": 5e-324, "high": 1e308, "log": True},
        {"type": "float", "low": 0, "high": 2.3e-308},
        {"type": "float", "low": 1, "high": 1.0000000000000002, "log": True},
        {"type": "float", "low": 3, "high": 3, "log": True},
        {"type": "float", "low": 1e15, "high": 1e15 + 10, "step": 0.125},
        {"type": "float", "low": 0, "high": 1, "step": 2},
        {"type": "int", "low": 1, "high": 2**53, "log": True},
        {"type": "int", "low": -(2**53), "high": 2**53, "step": 7},
        {"type": "int", "low": 5, "high": 5},
    ],
)
@pytest.mark.parametrize("multivariate", [True, False])
def test_proposals_stay_within_a_range_at_the_limits_of_floats(extreme: dict[str, Any], *, multivariate: bool) -> None:
    space = Space.model_validate({"p": extreme, "q": {"type": "float", "low": 0, "high": 1}})
    sampler = SamplerSpec(options={"n_startup_trials": 3, "multivariate": multivariate})
    history: list[Observation] = []
    for number, value in enumerate([0.0, 1e300, float("inf"), -1e300, float("-inf"), 1.0] * 2):
        params = propose(study_of(space, sampler), history, number)
        assert space.mistakes_in(params) == []
        history.append(completed(number, params, value))


def test_another_seed_is_another_search() -> None:
    assert propose(study_of(seed=1), [], 0) != propose(study_of(seed=2), [], 0)


def test_tpe_finds_the_good_region_more_often_than_chance() -> None:
    def distance(params: Params) -> float:
        lr, hidden = params["lr"], params["hidden"]
        assert isinstance(lr, float)
        assert isinstance(hidden, int)
        return abs(lr - 0.01) * 10 + abs(hidden - 128) / 128

    def found(sampler: str) -> float:
        values = [one.values for one in run(study_of(sampler=SamplerSpec(sampler=sampler)), 50, distance)]
        return sum(value[0] for value in values[20:] if value) / 30

    assert found("tpe") < found("random") / 2


def test_tpe_avoids_the_region_where_trials_diverge() -> None:
    study = study_of(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}))

    def seen(number: int, x: float) -> Observation:
        if x > 0.5:
            return Observation(number, {"x": x}, "diverged", last_step=3, last_value=-1e9)
        return Observation(number, {"x": x}, "pruned", last_step=3, last_value=1.0)

    history = [seen(number, (number % 20) / 20) for number in range(60)]
    proposals = [propose(study, history, number)["x"] for number in range(60, 80)]
    assert all(isinstance(x, float) and x <= 0.6 for x in proposals)


def test_nothing_is_learned_from_trials_that_failed_or_were_stopped_before_reporting() -> None:
    history = run(study_of(), 15, lambda params: params["lr"])
    silent = [
        Observation(15, history[0].params, "failed", last_step=2, last_value=-5.0),
        Observation(16, history[1].params, "stopped"),
    ]
    assert propose(study_of(), history + silent, 17) == propose(study_of(), history, 17)


def test_tpe_considers_running_trials_unless_constant_liar_is_off() -> None:
    history = run(study_of(), 15, lambda params: params["lr"])
    here = propose(study_of(), history, 20)
    running = [*history, *(Observation(number, here, "running") for number in range(15, 20))]
    deaf = study_of(sampler=SamplerSpec(options={"constant_liar": False}))
    assert propose(study_of(), running, 20) != here
    assert propose(deaf, running, 20) == propose(deaf, history, 20)


def test_tpe_searches_for_several_objectives() -> None:
    study = Study(Problem(SPACE, ("minimize", "maximize")), SamplerSpec(options={"n_startup_trials": 3}), 7)
    history = [
        Observation(n, propose(study, [], n), "completed" if n % 2 else "pruned", (n, -n) if n % 2 else None, 1, n)
        for n in range(12)
    ]
    assert SPACE.mistakes_in(propose(study, history, 12)) == []
