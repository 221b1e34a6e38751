"""What a search would look like, before its first trial."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.mistakes import Mistake
from search.problem import Observation, Problem, SpaceExhausted
from search.samplers import Choice
from search.space.configurations import TooEntangled
from search.space.forbidden import dead_branches
from search.space.space import Params
from search.study import StudyView


@dataclass(frozen=True)
class Preview:
    """`size` is None where the configurations cannot be counted. `dead` is what none of them has, with its path."""

    samples: Sequence[Params]
    size: int | None
    dead: Sequence[Mistake]
    choice: Choice


def preview(problem: Problem, count: int) -> Preview:
    """The first `count` proposals, of trials that all run at once; fewer where there are no more."""
    return Preview(
        samples=_samples(problem, count),
        size=problem.space.size(),
        dead=_dead(problem),
        choice=problem.sampler.chosen(problem.setting),
    )


def _samples(problem: Problem, count: int) -> list[Params]:
    view = StudyView(problem)
    samples: list[Params] = []
    try:
        for number in range(count):
            samples.append(view.propose([], number))
            view.update([Observation(number, samples[-1], "running")])
    except SpaceExhausted:
        pass
    return samples


def _dead(problem: Problem) -> list[Mistake]:
    try:
        return list(dead_branches(problem.space))
    except TooEntangled as reason:
        return [Mistake(("space",), str(reason))]
