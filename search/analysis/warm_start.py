"""What a search can learn from earlier experiments: their trials where they lie in its space."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue, TypeAdapter

from search.problem import Observation, Problem
from search.space.narrowed_space import inside
from search.space.parameters import IntParameter, Parameter
from search.space.space import Params, Space

MAX_TRIALS = 1000
"""Taken in all: a search slows down as its history grows."""

_UNFINISHED = {
    "running": "not finished",
    "failed": "failed",
}
_OBSERVATIONS: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])


@dataclass(frozen=True)
class Source:
    """An earlier experiment: its constants, and its trials in the terms of the new one's objectives, newest first."""

    name: str
    config: Mapping[str, JsonValue]
    trials: Sequence[Observation]


@dataclass
class Taken:
    """What became of a source's trials. `left_out` counts them by the reason, in words.

    `unknown`: parameters of the new space that trials which were taken do not have. `dropped`: parameters that they had
    and the new space has not.
    """

    experiment: str
    count: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)

    def shown(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "taken": self.count,
            "left_out": dict(sorted(self.left_out.items())),
            "unknown": sorted(self.unknown),
            "dropped": sorted(self.dropped),
        }


class _LeftOut(Exception):
    """Why a trial cannot be learned from."""


def warm_start(problem: Problem, sources: Sequence[Source]) -> tuple[list[Observation], list[Taken]]:
    """The observations to begin with, at most MAX_TRIALS of them, and what was taken from each source.

    Their numbers are below 0, so that they come before every trial; the newest has -1. A parameter that a trial does
    not have is taken from its experiment's constants, if they have it. Where it stays unknown, the trial is taken
    without it by a sampler that can learn from that.
    """
    found: list[Observation] = []
    report = [Taken(source.name) for source in sources]
    for source, taken in zip(sources, report, strict=True):
        for trial in source.trials:
            try:
                params = _params(problem, source, trial, room=MAX_TRIALS - len(found))
            except _LeftOut as why:
                taken.left_out[str(why)] += 1
                continue
            found.append(replace(trial, number=-1 - len(found), params=params))
            taken.count += 1
            taken.unknown |= set(_unknown(problem.space, params))
            taken.dropped |= set(trial.params) - set(problem.space.root)
    return found, report


def still_fitting(problem: Problem, observations: Sequence[Observation]) -> list[Observation]:
    """Those that lie in the problem's space and that its sampler can learn from: both may have changed since."""
    return [
        one
        for one in observations
        if inside(problem.space, one.params) and (_takes_parts(problem) or not _unknown(problem.space, one.params))
    ]


def to_json(observations: Sequence[Observation]) -> list[Any]:
    dumped: list[Any] = _OBSERVATIONS.dump_python(list(observations), mode="json")
    return dumped


def from_json(document: Any) -> list[Observation]:
    return _OBSERVATIONS.validate_python(document)


def _params(problem: Problem, source: Source, trial: Observation, *, room: int) -> Params:
    """The trial's configuration in the problem's space. Raises _LeftOut."""
    if trial.status in _UNFINISHED:
        raise _LeftOut(_UNFINISHED[trial.status])
    if trial.status == "stopped" and trial.last_value is None:
        raise _LeftOut("stopped before it reported")
    params = _placed(problem.space, {**source.config, **trial.params})
    if not params:
        raise _LeftOut("no parameter in common")
    if problem.space.forbids(params) is not None:
        raise _LeftOut("is forbidden")
    unknown = _unknown(problem.space, params)
    if unknown and not _takes_parts(problem):
        raise _LeftOut(f"{' and '.join(unknown)} not known, which {problem.sampler.sampler} needs")
    if not room:
        raise _LeftOut(f"beyond the {MAX_TRIALS} that are taken in all")
    return params


def _placed(space: Space, known: Mapping[str, JsonValue]) -> Params:
    """What is known of the parameters that exist. Raises _LeftOut for a value that the space does not have."""
    params: Params = {}
    for name in space.order:
        if name in known and space.exists(name, params):
            value = _converted(space.root[name], known[name])
            if space.root[name].mistake_in(value) is not None:
                raise _LeftOut(f"{name} is outside of the space")
            params[name] = value
    return {name: params[name] for name in space.root if name in params}


def _converted(parameter: Parameter, value: JsonValue) -> JsonValue:
    """A whole number that was a float's, for a parameter that is an int now."""
    return (
        int(value) if isinstance(parameter, IntParameter) and isinstance(value, float) and value.is_integer() else value
    )


def _unknown(space: Space, params: Params) -> list[str]:
    return [name for name in space.active(params) if name not in params]


def _takes_parts(problem: Problem) -> bool:
    return problem.sampler.chosen(problem.setting).sampler.takes_parts
