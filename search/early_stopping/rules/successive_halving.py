"""Successive halving that stops trials which are not among the best of a rung, or pauses them until they are."""

from collections.abc import Iterator

from search.early_stopping.decision import Release, Verdict, compared
from search.early_stopping.history import History, MetricReport
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.rules.promotion import arrival, promotions
from search.early_stopping.rules.rungs import Rungs, cutoff_at
from search.reported_numbers import finite_number


class SuccessiveHalving(Rungs):
    """`promote`: a trial that is not among the best of a rung is paused there, and resumes when it is."""

    promote: bool = False
    """whether a trial that does not pass a rung is paused, and resumes when it passes later; otherwise it is stopped"""

    @property
    def pauses(self) -> bool:
        return self.promote

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:
        if self.promote:
            return arrival(self, report, milestone, history)
        pool = self.pool_of(report.number, report.bracket)
        peers = history.peers(milestone, pool)
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
            cutoff=finite_number(cutoff) if standing.count else None,
            compared_count=standing.count,
            reason=self._reason(report, self.rung_name(pool, milestone), compared(report.value, cutoff), count),
            compared_with=tuple(peer.number for peer in nearest),
        )

    def releases(self, paused: PausedTrials) -> Iterator[Release]:
        return promotions(self, paused)

    def _reason(self, report: MetricReport, rung: str, comparison: tuple[str, str], count: int) -> str:
        value, relation = comparison
        what = f"{report.metric} {value} at step {report.step}"
        if count <= self.bootstrap_count:
            needed = self.bootstrap_count + 1
            return self.bootstrap_in_words(what, count, rung, needed)
        if count == 1:
            return f"{what} is the first to reach {rung}"
        return self.comparison_with_cutoff(what, relation, self.quota(count), count, rung)
