"""Paused trials in memory, for replays and tests."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from search.early_stopping.in_memory_history import InMemoryHistory
from search.early_stopping.paused_trials import PausedTrial
from search.early_stopping.peers import Peer, Peers, Ranking
from search.problem import Direction
from search.space.space import Params, Space


@dataclass
class InMemoryPausedTrials:
    """`PausedTrials` beside a history. `params` and `saved_steps` are those of `members`."""

    history: InMemoryHistory
    metric: str
    direction: Direction
    space: Space
    seed: int = 0
    others_may_come: bool = True
    any_completed: bool = False
    params: Mapping[int, Params] = field(default_factory=dict)
    saved_steps: Mapping[int, int] = field(default_factory=dict)
    rankings: dict[tuple[int, int], Ranking] = field(default_factory=dict)
    paused_at: dict[int, tuple[int, int, float]] = field(default_factory=dict)

    def pause(self, number: int, milestone: int, value: float, pool: int) -> None:
        self.paused_at[number] = milestone, pool, value
        insort(self.rankings.setdefault((milestone, pool), []), (value, number))

    def resume(self, number: int) -> None:
        milestone, pool, value = self.paused_at.pop(number)
        ranking = self.rankings[milestone, pool]
        del ranking[bisect_left(ranking, (value, number))]
        if not ranking:
            del self.rankings[milestone, pool]

    def milestones(self) -> Sequence[int]:
        return sorted({milestone for milestone, _ in self.rankings})

    def best(self, milestone: int, pool: int) -> Peer | None:
        ranking = self.rankings.get((milestone, pool))
        if not ranking:
            return None
        best, _ = ranking[-1 if self.direction == "maximize" else 0]
        value, number = ranking[bisect_left(ranking, (best,))]
        return Peer(number, value)

    def members(self, milestone: int) -> Sequence[PausedTrial]:
        found = sorted((number, value) for number, (at, _, value) in self.paused_at.items() if at == milestone)
        return [
            PausedTrial(number, value, self.params.get(number, {}), self.saved_steps.get(number))
            for number, value in found
        ]

    def peers(self, milestone: int, pool: int) -> Peers:
        return Peers(self.history.rankings[milestone, pool], None)
