"""Which trials of earlier experiments a search learns from, and why the others are left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue, TypeAdapter

from search.problem import Observation, Problem
from search.samplers.sampler_spec import SamplerSpec
from search.space.narrowed_space import inside
from search.space.parameters import IntParameter, Parameter
from search.space.space import Params, Space

MAX_TRIALS = 1000
"""The maximum in total, because a search slows down as its history grows."""

_UNFINISHED = {
    "running": "not finished",
    "failed": "failed",
}
_OBSERVATIONS: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])


@dataclass(frozen=True)
class Source:
    """An earlier experiment: its constants, and its trials, newest first, as observations of the new objectives."""

    name: str
    config: Mapping[str, JsonValue]
    trials: Sequence[Observation]


@dataclass
class SourceReport:
    """What was taken of a source's trials. `left_out` counts the others by the reason, in words.

    `unknown` has the parameters of the new space that trials which were taken lack; `dropped` has the parameters that
    they have and the new space lacks.
    """

    experiment: str
    count: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    unknown: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "taken": self.count,
            "left_out": dict(sorted(self.left_out.items())),
            "unknown": sorted(self.unknown),
            "dropped": sorted(self.dropped),
        }


class _LeftOut(Exception):
    """A trial is not taken; the message is the reason."""


def select_trials(
    problem: Problem, sampler: SamplerSpec, sources: Sequence[Source]
) -> tuple[list[Observation], list[SourceReport]]:
    """The observations to start with, at most MAX_TRIALS, and a report for each source.

    Their numbers are below 0, so that they come before every trial; the newest has -1. A parameter that a trial lacks
    is taken from its experiment's constants, if they have it. If it stays unknown, the trial is taken without it,
    provided that the sampler can learn from partial params.
    """
    space, needing_all = problem.space, None if sampler.learns_from_partial_params(problem) else sampler.sampler
    found: list[Observation] = []
    report = [SourceReport(source.name) for source in sources]
    for source, taken in zip(sources, report, strict=True):
        for trial in source.trials:
            try:
                params = _params(space, source, trial, room=MAX_TRIALS - len(found), needing_all=needing_all)
            except _LeftOut as reason:
                taken.left_out[str(reason)] += 1
                continue
            found.append(replace(trial, number=-1 - len(found), params=params, experiment=source.name))
            taken.count += 1
            taken.unknown |= set(_unknown(space, params))
            taken.dropped |= set(trial.params) - set(space.root)
    return found, report


def still_fitting(problem: Problem, sampler: SamplerSpec, observations: Sequence[Observation]) -> list[Observation]:
    """The observations that a study can still learn from: its space and its sampler may have changed."""
    space, needs_whole_params = problem.space, not sampler.learns_from_partial_params(problem)
    return [
        one
        for one in observations
        if inside(space, one.params) and not (needs_whole_params and _unknown(space, one.params))
    ]


def to_json(observations: Sequence[Observation]) -> list[Any]:
    dumped: list[Any] = _OBSERVATIONS.dump_python(list(observations), mode="json")
    return dumped


def from_json(document: Any) -> list[Observation]:
    return _OBSERVATIONS.validate_python(document)


def _params(space: Space, source: Source, trial: Observation, *, room: int, needing_all: str | None) -> Params:
    """The trial's configuration in the space. `needing_all` names a sampler that needs all of it. Raises _LeftOut."""
    if trial.status in _UNFINISHED:
        raise _LeftOut(_UNFINISHED[trial.status])
    if trial.status == "stopped" and trial.last_value is None:
        raise _LeftOut("stopped before it reported")
    params = _known_params(space, {**source.config, **trial.params})
    if not params:
        raise _LeftOut("no parameter in common")
    if space.forbids(params) is not None:
        raise _LeftOut("is forbidden")
    unknown = _unknown(space, params)
    if unknown and needing_all:
        raise _LeftOut(f"{' and '.join(unknown)} not known, which {needing_all} needs")
    if not room:
        raise _LeftOut(f"beyond the limit of {MAX_TRIALS:,} trials")
    return params


def _known_params(space: Space, known: Mapping[str, JsonValue]) -> Params:
    """The known values of the parameters that exist. Raises _LeftOut if a value is not in the space."""
    params: Params = {}
    for name in space.order:
        if name in known and space.exists(name, params):
            value = _converted(space.root[name], known[name])
            if space.root[name].mistake_in(value) is not None:
                raise _LeftOut(f"{name} is outside of the space")
            params[name] = value
    return {name: params[name] for name in space.root if name in params}


def _converted(parameter: Parameter, value: JsonValue) -> JsonValue:
    """A whole number as an int where the parameter, which was a float in the source, is an int now."""
    return (
        int(value) if isinstance(parameter, IntParameter) and isinstance(value, float) and value.is_integer() else value
    )


def _unknown(space: Space, params: Params) -> list[str]:
    return [name for name in space.active(params) if name not in params]
