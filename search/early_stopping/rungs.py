"""Successive halving: at each rung the best part of the trials goes on."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from search.early_stopping.base import StoppingRule, around, compared, if_finite, numbers
from search.early_stopping.rule import History, Peer, Reported, Standing, Verdict

_FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


class Rungs(StoppingRule):
    """A trial goes on at a rung if its value is in the best `1 / reduction_factor` of all that have reached the rung.

    Among fewer than `reduction_factor` trials only the best goes on.

    `bootstrap_count`: so many must have reached a rung before a trial passes it; those until then end there.
    """

    by_rungs: ClassVar[bool] = True
    rule: str
    min_step: Annotated[int, Field(ge=1)] = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    bootstrap_count: Annotated[int, Field(ge=0)] = 0

    def first_rung(self, number: int) -> int:
        """The step of the trial's lowest rung; each further one is `reduction_factor` times as high."""
        raise NotImplementedError

    def rung_name(self, number: int, rung: int) -> str:  # noqa: ARG002
        return f"rung {rung}"

    def milestones(self, report: Reported, history: History) -> list[int]:  # noqa: ARG002
        before = report.previous_step
        return [rung for rung in self._rungs(report) if before is None or before < rung]

    def _rungs(self, report: Reported) -> Iterator[int]:
        rung = self.first_rung(report.number)
        while rung <= report.step:
            yield rung
            rung *= self.reduction_factor

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict:
        peers = history.peers(milestone, self.pool_of(report.number))
        standing = peers.standing(report.value, report.direction)
        count = standing.count + 1
        last_to_pass = max(count // self.reduction_factor, 1) - 1
        place = last_to_pass if last_to_pass <= standing.better_count else last_to_pass - 1
        first, near = around(peers, report.direction, place)
        cutoff = _cutoff(report.value, standing, last_to_pass, near[place - first :])
        return Verdict(
            stop=count <= self.bootstrap_count or standing.better_count > last_to_pass,
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
        return f"{what} is {relation}, the cutoff of {self._best_of(count)} trials at {rung}"

    def _best_of(self, count: int) -> str:
        fraction = _FRACTIONS.get(self.reduction_factor, f"1/{self.reduction_factor}")
        return f"the best {fraction} of {count}" if count >= self.reduction_factor else f"the best of {count}"


def _cutoff(value: float, standing: Standing, place: int, from_there: Sequence[Peer]) -> float:
    """The value in that place of all, this one's included, which stands before those that equal it."""
    return value if place == standing.better_count else from_there[0].value
