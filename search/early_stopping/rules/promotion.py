"""Successive halving with promotion (Li et al., 2020): a trial that is not among the best at a rung is paused there.

Of trials that tie, the older ones count as better. Otherwise each new one would take the place of a promoted one.
"""

from collections.abc import Iterator, Sequence

from search.early_stopping.decision import Release, Verdict, compared, peers_around
from search.early_stopping.history import History, MetricReport
from search.early_stopping.paused_trials import PausedTrials
from search.early_stopping.peers import Peer, Peers
from search.early_stopping.rules.rungs import Rungs, cutoff_at
from search.problem import Direction, sign_of
from search.reported_numbers import finite_number


def arrival(rule: Rungs, report: MetricReport, rung: int, history: History) -> Verdict:
    """The verdict on a trial that reaches a rung: it is paused unless it is among the best that have reached it."""
    peers = history.peers(rung, rule.pool_of(report.number, report.bracket))
    standing = peers.standing(report.value, report.direction)
    count = standing.count + 1
    quota = _quota(rule, count)
    cutoff, nearest = cutoff_at(peers, report, standing, quota - 1) if quota else (None, ())
    pauses = not _is_among(peers, quota, Peer(report.number, report.value), cutoff, report.direction)
    return Verdict(
        stop=pauses,
        rule=rule.rule,
        step=report.step,
        milestone=rung,
        value=report.value,
        cutoff=finite_number(cutoff),
        compared_count=standing.count,
        reason=_reason(rule, report, rung, cutoff, count) + (_why_paused(rule, report, cutoff) if pauses else ""),
        compared_with=tuple(peer.number for peer in nearest),
        pauses=pauses,
    )


def promotions(rule: Rungs, paused: PausedTrials) -> Iterator[Release]:
    """The paused trials that are among the best of their rung now, the highest rung first.

    When no other trial may come, one trial of each pool is promoted even if too few have reached the rung. If no trial
    has completed by then, the best of those that have come furthest is promoted in place of one that failed or was
    stopped, although that one counts in the quota.
    """
    any_in_quota = False
    for one in _within_quota(rule, paused):
        any_in_quota = True
        yield one
    if not (any_in_quota or paused.others_may_come or paused.any_completed):
        yield from _in_place_of_others(rule, paused)


def _within_quota(rule: Rungs, paused: PausedTrials) -> Iterator[Release]:
    is_last_call, released_pools = not paused.others_may_come, set[int]()
    for rung in reversed(paused.milestones()):
        for pool in rule.pools_at(rung):
            minimum = int(is_last_call and pool not in released_pools)
            for one in _within_quota_at(rule, paused, rung, pool, minimum):
                released_pools.add(pool)
                yield one


def _within_quota_at(rule: Rungs, paused: PausedTrials, rung: int, pool: int, min_quota: int) -> Iterator[Release]:
    best = paused.best(rung, pool)
    if best is None:
        return
    peers = paused.peers(rung, pool)
    count = peers.count()
    quota = max(_quota(rule, count), min_quota)
    if not quota:
        return
    first, nearest = peers_around(peers, paused.direction, quota - 1)
    cutoff = nearest[quota - 1 - first].value
    while best and _is_among(peers, quota, best, cutoff, paused.direction):
        yield _promotion(rule, paused, rung, pool, best, cutoff, quota, count, nearest)
        best = paused.best(rung, pool)


def _in_place_of_others(rule: Rungs, paused: PausedTrials) -> Iterator[Release]:
    for rung in reversed(paused.milestones()):
        found = [(best, pool) for pool in rule.pools_at(rung) if (best := paused.best(rung, pool)) is not None]
        if found:
            best, pool = min(found, key=lambda one: (sign_of(paused.direction) * one[0].value, one[0].number))
            what = f"{paused.metric} {best.value:.6g} is the best of the trials paused at"
            yield Release(
                number=best.number,
                decision="promote",
                milestone=rung,
                value=best.value,
                cutoff=None,
                compared_count=0,
                compared_with=(),
                reason=f"{what} {rule.rung_name(pool, rung)}, and no trial has completed: promoted",
            )
            return


def _quota(rule: Rungs, count: int) -> int:
    """How many of `count` trials at a rung pass it; none while the rung is in its bootstrap."""
    return rule.quota(count) if count > rule.bootstrap_count else 0


def _is_among(peers: Peers, quota: int, one: Peer, cutoff: float | None, direction: Direction) -> bool:
    """Whether a trial is within the quota, whose last value is `cutoff`. A tie is resolved by the trials' numbers."""
    if cutoff is None or one.value != cutoff:
        return cutoff is not None and sign_of(direction) * one.value < sign_of(direction) * cutoff
    return peers.standing(one.value, direction, one.number).better_count < quota


def _reason(rule: Rungs, report: MetricReport, rung: int, cutoff: float | None, count: int) -> str:
    value, relation = compared(report.value, report.value if cutoff is None else cutoff)
    name = rule.rung_name(rule.pool_of(report.number, report.bracket), rung)
    what = f"{report.metric} {value} at step {report.step}"
    if cutoff is None:
        needed = max(1 if rule.extra_count else rule.reduction_factor, rule.bootstrap_count + 1)
        return rule.bootstrap_in_words(what, count, name, needed)
    return rule.comparison_with_cutoff(what, relation, rule.quota(count), count, name)


def _why_paused(rule: Rungs, report: MetricReport, cutoff: float | None) -> str:
    tie = "; older trials with this value come first" if report.value == cutoff else ""
    return tie if rule.why_spared(report) else f"{tie}; it is paused there"


def _promotion(
    rule: Rungs,
    paused: PausedTrials,
    rung: int,
    pool: int,
    best: Peer,
    cutoff: float,
    quota: int,
    count: int,
    nearest: Sequence[Peer],
) -> Release:
    value, relation = compared(best.value, cutoff)
    what, name = f"{paused.metric} {value}", rule.rung_name(pool, rung)
    reason = rule.comparison_with_cutoff(what, relation, quota, count, name)
    return Release(
        number=best.number,
        decision="promote",
        milestone=rung,
        value=best.value,
        cutoff=finite_number(cutoff),
        compared_count=count - 1,
        compared_with=tuple(peer.number for peer in nearest if peer.number != best.number),
        reason=f"{reason}: promoted",
    )
