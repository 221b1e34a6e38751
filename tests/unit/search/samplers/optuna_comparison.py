"""Spaces, histories and searches by which a sampler is compared with Optuna's."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import (
    BaseSampler,
)
from optuna.trial import TrialState

from search.problem import Direction, Observation, Problem, Status, sign_of
from search.samplers import SamplerSpec
from search.samplers.constrained_draw import derived_seed
from search.space.space import Params, Space
from search.study import Study, StudyView

NUMBERS = Space.model_validate(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "depth": {"type": "int", "low": 1, "high": 9, "step": 2},
        "width": {"type": "int", "low": 8, "high": 512, "log": True},
        "drop": {"type": "float", "low": 0.0, "high": 0.5, "step": 0.125},
    }
)
MIXED = Space.model_validate(
    {**NUMBERS.model_dump(), "act": {"type": "categorical", "choices": ["relu", "gelu", "elu"]}}
)


CONDITIONAL = Space.model_validate(
    {**MIXED.model_dump(), "slope": {"type": "float", "low": 0.0, "high": 1.0, "when": {"act": "relu"}}}
)


def numbers(trial: optuna.Trial) -> Params:
    return {
        "lr": trial.suggest_float("lr", 1e-4, 1.0, log=True),
        "depth": trial.suggest_int("depth", 1, 9, step=2),
        "width": trial.suggest_int("width", 8, 512, log=True),
        "drop": trial.suggest_float("drop", 0.0, 0.5, step=0.125),
    }


def mixed(trial: optuna.Trial) -> Params:
    return {**numbers(trial), "act": trial.suggest_categorical("act", ["relu", "gelu", "elu"])}


def conditional(trial: optuna.Trial) -> Params:
    """Drawn parents first, as in a space."""
    params = mixed(trial)
    return {**params, **({"slope": trial.suggest_float("slope", 0.0, 1.0)} if params["act"] == "relu" else {})}


def score(params: Params) -> float:
    lr, depth, width = params["lr"], params["depth"], params["width"]
    assert isinstance(lr, float)
    assert isinstance(depth, int)
    assert isinstance(width, int)
    return float((np.log10(lr) + 2) ** 2 + (depth - 5) ** 2 / 8 + abs(width - 64) / 64)


def size(params: Params) -> float:
    width, drop = params["width"], params["drop"]
    assert isinstance(width, int)
    assert isinstance(drop, float)
    return width * (1 - drop)


DIRECTIONS: tuple[Direction, ...] = ("minimize", "maximize", "minimize")


def study_of(space: Space, sampler: SamplerSpec, objectives: int = 1, *, constrained: bool = False) -> Study:
    return Study(Problem(space, DIRECTIONS[:objectives], constrained), sampler, 7)


def observed(number: int, params: Params, objectives: int) -> Observation:
    values = (score(params), size(params), -size(params) - score(params))[:objectives]
    return Observation(number, params, "completed", values, 1, values[0])


def of_paceline(study: Study, count: int) -> list[Params]:
    """The proposals if one trial runs at a time."""
    view, found, changes = StudyView(study), list[Params](), list[Observation]()
    for number in range(count):
        found.append(view.propose(changes, number))
        changes = [observed(number, found[-1], len(study.problem.directions))]
    return found


def of_optuna(
    study: Study,
    count: int,
    sampler: Callable[[int], BaseSampler],
    suggest: Callable[[optuna.Trial], Params],
    *,
    minimized: bool = False,
) -> list[Params]:
    """Optuna does it with its own storage; each trial's random numbers are derived from (seed, number).

    `minimized`: maximized objectives are negated, and Optuna minimizes all of them.
    """
    directions = study.problem.directions
    signs = [sign_of(one) if minimized else 1 for one in directions]
    optuna_study = optuna.create_study(directions=["minimize"] * len(signs) if minimized else list(directions))
    found = list[Params]()
    for number in range(count):
        optuna_study.sampler = sampler(derived_seed(study.seed, number))
        trial = optuna_study.ask()
        found.append(suggest(trial))
        values = observed(number, found[-1], len(directions)).values or ()
        optuna_study.tell(trial, [sign * value for sign, value in zip(signs, values, strict=True)])
    return found


STATES: dict[Status, TrialState] = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "diverged": TrialState.PRUNED,
    "running": TrialState.RUNNING,
    "failed": TrialState.FAIL,
}
OFTEN: tuple[Status, ...] = ("completed",) * 5 + ("pruned",) * 4 + ("diverged", "running", "failed")


def of_every_status(space: Space, count: int, *, constrained: bool) -> list[Observation]:
    """Trials with random configurations. Of those that diverged, the constraint held before."""
    found = []
    for number, params in enumerate(of_paceline(study_of(space, SamplerSpec(sampler="random")), count)):
        status = OFTEN[number * 7 % len(OFTEN)]
        whole = observed(number, params, 1)
        values = whole.values if status == "completed" else None
        violation = -1.0 if status == "diverged" else size(params) - 100
        constraints = (violation,) if constrained and status in ("completed", "pruned", "diverged") else None
        step = number % 9
        found.append(replace(whole, status=status, values=values, last_step=step, constraints=constraints))
    return found


def frozen_trial_of(observation: Observation) -> optuna.trial.FrozenTrial:
    """A trial of CONDITIONAL or MIXED as a trial of Optuna."""
    distributions = {
        "lr": FloatDistribution(1e-4, 1.0, log=True),
        "depth": IntDistribution(1, 9, step=2),
        "width": IntDistribution(8, 512, log=True),
        "drop": FloatDistribution(0.0, 0.5, step=0.125),
        "act": CategoricalDistribution(["relu", "gelu", "elu"]),
        "slope": FloatDistribution(0.0, 1.0),
    }
    state, known = STATES[observation.status], observation.constraints
    if observation.status == "diverged" and known:
        known = (float("inf"),)
    has_curve = observation.status == "pruned" and observation.last_step is not None
    trial = optuna.trial.create_trial(
        state=state,
        intermediate_values={observation.last_step: observation.last_value} if has_curve else {},  # type: ignore[dict-item]
        values=observation.values,
        params=observation.params,
        distributions={name: distributions[name] for name in observation.params},
        constraints={str(index): value for index, value in enumerate(known or ())} or None,
    )
    trial.number = observation.number
    return trial
