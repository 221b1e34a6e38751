"""Successive halving as Li et al. (2020) have it: who is not among the best at a rung waits there, and may be next.

Of trials that tie, the older ones are the better: else each new one would go on in place of one that went on before.
"""

from collections.abc import Iterator, Sequence

from search.early_stopping.contract import History, Peer, Peers, Reported, Verdict
from search.early_stopping.pause_contract import Release, Waiting
from search.early_stopping.rule_base import around, compared, if_finite, numbers
from search.early_stopping.rules.rungs import Rungs, last_to_pass
from search.problem import Direction, sign_of


def arrival(rule: Rungs, report: Reported, rung: int, history: History) -> Verdict:
    """Whether the trial is among the best that have reached the rung, as many as go on from there; else it waits."""
    peers = history.peers(rung, rule.pool_of(report.number))
    standing = peers.standing(report.value, report.direction)
    count = standing.count + 1
    quota = _quota(rule, count)
    cutoff, near = last_to_pass(peers, report, standing, quota - 1) if quota else (None, ())
    waits = not _is_among(peers, quota, Peer(report.number, report.value), cutoff, report.direction)
    return Verdict(
        stop=waits,
        rule=rule.rule,
        step=report.step,
        milestone=rung,
        value=report.value,
        cutoff=None if cutoff is None else if_finite(cutoff),
        compared_count=standing.count,
        reason=_why(rule, report, rung, cutoff, count) + ("; it waits there" if waits else ""),
        compared_with=numbers(near),
        pauses=waits,
    )


def promotions(rule: Rungs, waiting: Waiting) -> Iterator[Release]:
    """Those that wait and are now among the best of their rung, the highest rung first.

    When nothing runs and nothing is to come, too few at a rung let one of each pool go on all the same. And as long as
    nobody has come to the end by then, the best of those that have come furthest goes on in place of one that failed or
    was stopped, though that one's place is taken.
    """
    earned = False
    for one in _earned(rule, waiting):
        earned = True
        yield one
    if not (earned or waiting.others_may_come or waiting.any_completed):
        yield from _in_place_of_others(rule, waiting)


def _earned(rule: Rungs, waiting: Waiting) -> Iterator[Release]:
    nobody_comes, gone_on = not waiting.others_may_come, set[int]()
    for rung in reversed(waiting.milestones()):
        for pool in rule.pools_at(rung):
            for one in _earned_in(rule, waiting, rung, pool, least=int(nobody_comes and pool not in gone_on)):
                gone_on.add(pool)
                yield one


def _earned_in(rule: Rungs, waiting: Waiting, rung: int, pool: int, *, least: int) -> Iterator[Release]:
    """`least`: so many are among the best, however few there are."""
    best = waiting.best(rung, pool)
    if best is None:
        return
    peers = waiting.peers(rung, pool)
    count = peers.count()
    quota = max(_quota(rule, count), least)
    if not quota:
        return
    first, near = around(peers, waiting.direction, quota - 1)
    cutoff = near[quota - 1 - first].value
    while best and _is_among(peers, quota, best, cutoff, waiting.direction):
        yield _promotion(rule, waiting, rung, best, cutoff, count, near)
        best = waiting.best(rung, pool)


def _in_place_of_others(rule: Rungs, waiting: Waiting) -> Iterator[Release]:
    for rung in reversed(waiting.milestones()):
        found = filter(None, (waiting.best(rung, pool) for pool in rule.pools_at(rung)))
        best = min(found, key=lambda one: (sign_of(waiting.direction) * one.value, one.number), default=None)
        if best is not None:
            what = f"{waiting.metric} {best.value:.6g} is the best of those that wait at"
            yield Release(
                number=best.number,
                decision="promote",
                milestone=rung,
                value=best.value,
                cutoff=None,
                compared_count=0,
                compared_with=(),
                reason=f"{what} {rule.rung_name(best.number, rung)}, and nobody has come to the end: promoted",
            )
            return


def _quota(rule: Rungs, count: int) -> int:
    """How many of so many at a rung go on from there."""
    return rule.place_count(count) if count > rule.bootstrap_count else 0


def _is_among(peers: Peers, quota: int, one: Peer, cutoff: float | None, direction: Direction) -> bool:
    """Whether so many places are enough for it, the last of which has the value `cutoff`. Looks closer at a tie."""
    if cutoff is None or one.value != cutoff:
        return cutoff is not None and sign_of(direction) * one.value < sign_of(direction) * cutoff
    return peers.standing(one.value, direction, one.number).better_count < quota


def _why(rule: Rungs, report: Reported, rung: int, cutoff: float | None, count: int) -> str:
    value, relation = compared(report.value, report.value if cutoff is None else cutoff)
    what, name = f"{report.metric} {value} at step {report.step}", rule.rung_name(report.number, rung)
    if cutoff is None:
        needed = max(1 if rule.extra_count else rule.reduction_factor, rule.bootstrap_count + 1)
        return f"{name} lets nobody go on until {needed} trials have reached it, and {what} is number {count}"
    return rule.beside_cutoff(what, relation, count, name)


def _promotion(
    rule: Rungs, waiting: Waiting, rung: int, best: Peer, cutoff: float, count: int, near: Sequence[Peer]
) -> Release:
    value, relation = compared(best.value, cutoff)
    why = rule.beside_cutoff(f"{waiting.metric} {value}", relation, count, rule.rung_name(best.number, rung))
    return Release(
        number=best.number,
        decision="promote",
        milestone=rung,
        value=best.value,
        cutoff=if_finite(cutoff),
        compared_count=count - 1,
        compared_with=tuple(number for number in numbers(near) if number != best.number),
        reason=f"{why}: promoted",
    )
