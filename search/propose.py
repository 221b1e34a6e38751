"""The next configuration, as a pure function of the history."""

from collections.abc import Sequence

from search.problem import Direction, Observation, Problem, SpaceExhausted, Status
from search.space.space import Params
from search.study import StudyView

__all__ = ["Direction", "Observation", "Params", "Problem", "SpaceExhausted", "Status", "propose"]


def propose(problem: Problem, history: Sequence[Observation], number: int) -> Params:
    """The params of trial `number`: same arguments, same answer, in any process.

    The order of the history is of no account. Its random numbers come from (seed, number), so that a search rebuilt
    after a restart goes on as if nothing had happened. Raises SpaceExhausted when nothing is left to propose.
    """
    return StudyView(problem).propose(history, number)
