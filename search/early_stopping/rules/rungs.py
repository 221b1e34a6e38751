"""Successive halving: at each rung the best part of the trials goes on."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from search.early_stopping.contract import ALL, History, Peer, Peers, Reported, Standing, Verdict
from search.early_stopping.rule_base import StoppingRule, around, compared, if_finite, numbers

_FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


class Rungs(StoppingRule):
    """A trial goes on at a rung if its value is in the best `1 / reduction_factor` of all that have reached the rung.

    Among fewer than `reduction_factor` trials only the best goes on.

    `bootstrap_count`: so many must have reached a rung before a trial passes it; those until then end there.
    `extra_count`: so many more than these go on.
    """

    by_rungs: ClassVar[bool] = True
    rule: str
    min_step: Annotated[int, Field(ge=1)] = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    bootstrap_count: Annotated[int, Field(ge=0)] = 0
    extra_count: Annotated[int, Field(ge=0)] = 0

    def place_count(self, count: int) -> int:
        """How many of so many at a rung go on from there. With promotion those may be none, who then wait."""
        best = max(count // self.reduction_factor, 0 if self.pauses else 1)
        return min(best + self.extra_count, count)

    @property
    def rungs_end(self) -> int | None:
        """There is no rung at this step, and none beyond."""
        return None

    def first_rung(self, number: int) -> int:
        """The step of the trial's lowest rung; each further one is `reduction_factor` times as high."""
        raise NotImplementedError

    def pools_at(self, rung: int) -> Iterable[int]:  # noqa: ARG002
        """Those in which trials meet at the rung."""
        return (ALL,)

    def rung_name(self, number: int, rung: int) -> str:  # noqa: ARG002
        return f"rung {rung}"

    def milestones(self, report: Reported, history: History) -> list[int]:  # noqa: ARG002
        before = report.previous_step
        return [rung for rung in self._rungs(report) if before is None or before < rung]

    def _rungs(self, report: Reported) -> Iterator[int]:
        rung, end = self.first_rung(report.number), self.rungs_end
        while rung <= report.step and (end is None or rung < end):
            yield rung
            rung *= self.reduction_factor

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict:
        peers = history.peers(milestone, self.pool_of(report.number))
        standing = peers.standing(report.value, report.direction)
        count = standing.count + 1
        last = self.place_count(count) - 1
        cutoff, near = last_to_pass(peers, report, standing, last)
        return Verdict(
            stop=count <= self.bootstrap_count or standing.better_count > last,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=report.value,
            cutoff=if_finite(cutoff) if standing.count else None,
            compared_count=standing.count,
            reason=self._reason(report, milestone, compared(report.value, cutoff), count),
            compared_with=numbers(near),
        )

    def _reason(self, report: Reported, milestone: int, comparison: tuple[str, str], count: int) -> str:
        value, relation = comparison
        what = f"{report.metric} {value} at step {report.step}"
        rung = self.rung_name(report.number, milestone)
        if count <= self.bootstrap_count:
            needed = self.bootstrap_count + 1
            return f"{rung} lets nobody pass until {needed} trials have reached it, and {what} is number {count}"
        if count == 1:
            return f"{what} is the first to reach {rung}"
        return self.beside_cutoff(what, relation, count, rung)

    def beside_cutoff(self, what: str, relation: str, count: int, rung: str) -> str:
        """What decides who goes on from a rung, in words."""
        return f"{what} is {relation}, the cutoff of {self.best_of(count)} trials at {rung}"

    def best_of(self, count: int) -> str:
        """Who goes on, of so many: `the best third of 9`."""
        if self.extra_count:
            return f"the best {self.place_count(count)} of {count}"
        fraction = _FRACTIONS.get(self.reduction_factor, f"1/{self.reduction_factor}")
        return f"the best {fraction} of {count}" if count >= self.reduction_factor else f"the best of {count}"


def last_to_pass(peers: Peers, report: Reported, standing: Standing, last: int) -> tuple[float, Sequence[Peer]]:
    """The value in the place `last` of all, this one's included, and the others that are nearest to it."""
    place = last if last <= standing.better_count else last - 1
    first, near = around(peers, report.direction, place)
    return report.value if last == standing.better_count else near[place - first].value, near
