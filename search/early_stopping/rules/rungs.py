"""The rungs of successive halving, and how many trials pass one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import Field

from search.early_stopping.decision import peers_around
from search.early_stopping.history import ALL, History, MetricReport
from search.early_stopping.peers import Peer, Peers, Standing
from search.early_stopping.rule import StoppingRule
from search.numbers_in_messages import counted

_FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


class Rungs(StoppingRule):
    """A trial passes a rung if its value is in the best `1 / reduction_factor` of all that have reached the rung.

    Among fewer than `reduction_factor` trials only the best one passes.

    `bootstrap_count`: the number of trials that must have reached a rung before one passes it; these trials are
    stopped. `extra_count`: the number of trials that pass in addition. `whole_count`: the number of first trials that
    are never stopped, so that it is soon known what a whole training is like.
    """

    min_step: Annotated[int, Field(ge=1)] = 1
    """the step of the first rung"""
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    """each rung is at so many times the step of the one before, and the best 1 in so many pass it"""
    bootstrap_count: Annotated[int, Field(ge=0)] = 0
    """how many trials must have reached a rung before one passes it"""
    extra_count: Annotated[int, Field(ge=0)] = 0
    """how many more trials pass a rung"""
    whole_count: Annotated[int, Field(ge=0)] = 0
    """how many of the first trials run to their ends; they are compared all the same"""

    def quota(self, count: int) -> int:
        """How many of `count` trials at a rung pass it. With promotion this may be 0: then all of them are paused."""
        best = max(count // self.reduction_factor, 0 if self.pauses else 1)
        return min(best + self.extra_count, count)

    def why_spared(self, report: MetricReport) -> str | None:
        if report.number < self.whole_count:
            which = f"first {self.whole_count} trials run" if self.whole_count > 1 else "first trial runs"
            return f"the {which} to the end"
        return super().why_spared(report)

    def first_rung(self, pool: int) -> int:
        """The step of the pool's lowest rung; each further rung is at `reduction_factor` times the step."""
        raise NotImplementedError

    def first_recorded(self, pool: int) -> int:
        """The step of the lowest rung at which trials of the pool are recorded."""
        return self.first_rung(pool)

    def pools_at(self, rung: int) -> Iterable[int]:  # noqa: ARG002
        """The pools whose trials have this rung."""
        return (ALL,)

    def rung_name(self, pool: int, rung: int) -> str:  # noqa: ARG002
        return f"rung {rung}"

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        """Only the highest, as in Ray Tune: a report is late for the others that it passes.

        Among trials that have reported there, it would have the advantage of its later step.
        """
        before = -1 if report.previous_step is None else report.previous_step
        return [rung for rung in self.rungs_up_to(report) if rung > before][-1:]

    def rungs_up_to(self, report: MetricReport) -> Iterator[int]:
        """The rungs that the trial has come to, in order, with this report or before it."""
        rung, end = self.first_recorded(self.pool_of(report.number, report.bracket)), self.last_step
        while rung <= report.step and (end is None or rung < end):
            yield rung
            rung *= self.reduction_factor

    def comparison_with_cutoff(self, what: str, relation: str, quota: int, count: int, rung: str) -> str:
        """The comparison that decides whether a trial is among the `quota` of `count` trials that pass, in words."""
        fraction = _FRACTIONS.get(self.reduction_factor, f"1/{self.reduction_factor}")
        is_fraction = not self.extra_count and quota == count // self.reduction_factor
        compared = f"best {fraction if is_fraction else quota} of {counted(count, 'trial')} (this one included)"
        return f"{what} is {relation}, the cutoff of the {compared} at {rung}"

    def bootstrap_in_words(self, what: str, count: int, rung: str, needed: int) -> str:
        """Why no trial passes a rung yet, which `count` trials have reached."""
        reached = f"{counted(count, 'trial')} {'has' if count == 1 else 'have'} reached {rung}"
        return f"{what}; {reached}, and none passes before {needed} have"


def cutoff_at(peers: Peers, report: MetricReport, standing: Standing, rank: int) -> tuple[float, Sequence[Peer]]:
    """The value at a rank among all trials including the reporting one, and the peers nearest to it."""
    rank_among_peers = rank if rank <= standing.better_count else rank - 1
    first, nearest = peers_around(peers, report.direction, rank_among_peers)
    return report.value if rank == standing.better_count else nearest[rank_among_peers - first].value, nearest
