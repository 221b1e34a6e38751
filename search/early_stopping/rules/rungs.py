"""Rungs of successive halving: at each rung, the best part of the trials passes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from search.early_stopping.decision import Verdict, compared, if_finite, numbers_of, peers_around
from search.early_stopping.history import ALL, History, MetricReport, Peer, Peers, Standing
from search.early_stopping.rule import StoppingRule

_FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


class Rungs(StoppingRule):
    """A trial passes a rung if its value is in the best `1 / reduction_factor` of all that have reached the rung.

    Among fewer than `reduction_factor` trials only the best one passes.

    `bootstrap_count`: the number of trials that must have reached a rung before one passes it; these trials are
    stopped. `extra_count`: the number of trials that pass in addition.
    """

    by_rungs: ClassVar[bool] = True
    min_step: Annotated[int, Field(ge=1)] = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    bootstrap_count: Annotated[int, Field(ge=0)] = 0
    extra_count: Annotated[int, Field(ge=0)] = 0

    def quota(self, count: int) -> int:
        """How many of `count` trials at a rung pass it. With promotion this may be 0: then all of them are paused."""
        best = max(count // self.reduction_factor, 0 if self.pauses else 1)
        return min(best + self.extra_count, count)

    @property
    def rungs_end(self) -> int | None:
        """The step at and beyond which there is no rung; None if there is no such step."""
        return None

    def first_rung(self, number: int) -> int:
        """The step of the trial's lowest rung; each further rung is at `reduction_factor` times the step."""
        raise NotImplementedError

    def pools_at(self, rung: int) -> Iterable[int]:  # noqa: ARG002
        """The pools whose trials have this rung."""
        return (ALL,)

    def rung_name(self, number: int, rung: int) -> str:  # noqa: ARG002
        return f"rung {rung}"

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        before = report.previous_step
        return [rung for rung in self._rungs(report) if before is None or before < rung]

    def _rungs(self, report: MetricReport) -> Iterator[int]:
        rung, end = self.first_rung(report.number), self.rungs_end
        while rung <= report.step and (end is None or rung < end):
            yield rung
            rung *= self.reduction_factor

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:
        peers = history.peers(milestone, self.pool_of(report.number))
        standing = peers.standing(report.value, report.direction)
        count = standing.count + 1
        last_rank = self.quota(count) - 1
        cutoff, nearest = cutoff_at(peers, report, standing, last_rank)
        return Verdict(
            stop=count <= self.bootstrap_count or standing.better_count > last_rank,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=report.value,
            cutoff=if_finite(cutoff) if standing.count else None,
            compared_count=standing.count,
            reason=self._reason(report, milestone, compared(report.value, cutoff), count),
            compared_with=numbers_of(nearest),
        )

    def _reason(self, report: MetricReport, milestone: int, comparison: tuple[str, str], count: int) -> str:
        value, relation = comparison
        what = f"{report.metric} {value} at step {report.step}"
        rung = self.rung_name(report.number, milestone)
        if count <= self.bootstrap_count:
            needed = self.bootstrap_count + 1
            return f"no trial passes {rung} until {needed} have reached it, and {what} is number {count}"
        if count == 1:
            return f"{what} is the first to reach {rung}"
        return self.comparison_with_cutoff(what, relation, count, rung)

    def comparison_with_cutoff(self, what: str, relation: str, count: int, rung: str) -> str:
        """The comparison that decides whether a trial passes a rung, in words."""
        return f"{what} is {relation}, the cutoff of {self._best_of(count)} trials at {rung}"

    def _best_of(self, count: int) -> str:
        """The trials that pass, in words: `the best third of 9`."""
        if self.extra_count:
            return f"the best {self.quota(count)} of {count}"
        fraction = _FRACTIONS.get(self.reduction_factor, f"1/{self.reduction_factor}")
        return f"the best {fraction} of {count}" if count >= self.reduction_factor else f"the best of {count}"


def cutoff_at(peers: Peers, report: MetricReport, standing: Standing, rank: int) -> tuple[float, Sequence[Peer]]:
    """The value at a rank among all trials including the reporting one, and the peers nearest to it."""
    rank_among_peers = rank if rank <= standing.better_count else rank - 1
    first, nearest = peers_around(peers, report.direction, rank_among_peers)
    return report.value if rank == standing.better_count else nearest[rank_among_peers - first].value, nearest
