"""A preview of a search, before its first trial."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.mistakes import Mistake
from search.problem import Observation, SpaceExhausted
from search.samplers import ChosenSampler
from search.space.axes import TooEntangled
from search.space.forbidden import dead_branches
from search.space.space import Params, Space
from search.study import Study, StudyView


@dataclass(frozen=True)
class Preview:
    """`size` is None if the configurations cannot be counted. `dead` has what no configuration has, with its path.

    `warnings` say what was not computed.
    """

    samples: Sequence[Params]
    size: int | None
    dead: Sequence[Mistake]
    sampler: ChosenSampler
    warnings: Sequence[Mistake]


def preview(study: Study, count: int) -> Preview:
    """`samples` are the first `count` proposals, as if all of their trials ran; fewer if the space has fewer.

    With `search.repeats` a space has no end, except for samplers that try each configuration once.
    """
    space = study.problem.space
    dead, warnings = _dead(space)
    size = space.size()
    possible = count if size is None or study.sampler.repeats else min(count, size)
    return Preview(_samples(study, possible), size, dead, study.chosen_sampler, warnings)


def _samples(study: Study, count: int) -> list[Params]:
    view = StudyView(study)
    samples: list[Params] = []
    try:
        for number in range(count):
            samples.append(view.propose([], number))
            view.update([Observation(number, samples[-1], "running")])
    except SpaceExhausted:
        pass
    return samples


def _dead(space: Space) -> tuple[Sequence[Mistake], Sequence[Mistake]]:
    """What no configuration has, and a warning if that cannot be computed."""
    try:
        return list(dead_branches(space)), []
    except TooEntangled as reason:
        return [], [Mistake(("space",), f"{reason}; whether a part of it is never used is not known")]
