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
    """`size` is None if the configurations cannot be counted. `dead` has what no configuration has, with its path."""

    samples: Sequence[Params]
    size: int | None
    dead: Sequence[Mistake]
    sampler: ChosenSampler


def preview(study: Study, count: int) -> Preview:
    """`samples` are the first `count` proposals, as if all of their trials ran; fewer if the space has fewer."""
    space = study.problem.space
    return Preview(_samples(study, count), space.size(), _dead(space), study.chosen_sampler)


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


def _dead(space: Space) -> list[Mistake]:
    try:
        return list(dead_branches(space))
    except TooEntangled as reason:
        return [Mistake(("space",), str(reason))]
