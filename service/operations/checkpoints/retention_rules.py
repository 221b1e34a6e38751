"""Which checkpoints of an experiment are kept, and why: a pure function of what is stored.

While a trial may train on, all of its checkpoints are kept. Afterwards those of the best trials are, and those that
something still needs: a pin, an attempt that resumes from it, a retry.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from search.problem import Direction, sign_of
from service.domain.statuses import ELIGIBLE_FOR_BEST, LIVE_TRIAL, TRIAL_REVIVALS, TrialStatus

SETTLED_SECONDS = 15
"""The slot of a trial that ended so long ago writes nothing more."""


@dataclass(frozen=True)
class RetentionRules:
    """What the spec says. `keep_best_trials`: None keeps the checkpoints of all trials.

    `is_over`: the experiment has ended, so that its trials can be retried only after a user has reopened it.
    """

    keep: int
    keep_best_trials: int | None
    keep_last: bool
    direction: Direction
    is_over: bool


@dataclass(frozen=True)
class RetainedTrial:
    """`value` ranks it, None for a trial that cannot be among the best: infeasible, or without the metric.

    `is_on_front`: no trial beats it in all objectives. `has_settled`: if it has ended, then so long ago that its slot
    writes nothing more. `resume_uri` is what a further attempt would resume from. `is_winner`: its configuration is
    confirmed, or may come to be.
    """

    number: int
    status: TrialStatus
    value: float | None
    is_on_front: bool
    has_settled: bool
    resume_uri: str | None
    is_winner: bool = False


@dataclass(frozen=True)
class RetainedCheckpoint:
    """`agent`: the one whose slot has saved it, and that may remove it; None if another program has.

    `is_best`: it is its trial's best one, which is kept with the newest. The order is by `attempt` and `sequence`.
    """

    trial: int
    step: int
    attempt: int
    sequence: int
    uri: str
    size: int | None
    is_pinned: bool
    agent: str | None
    is_best: bool = False


@dataclass(frozen=True)
class RetentionVerdict:
    """What becomes of a checkpoint, with the reason in words."""

    checkpoint: RetainedCheckpoint
    is_kept: bool
    why: str


def retention_verdicts(
    rules: RetentionRules,
    trials: Sequence[RetainedTrial],
    checkpoints: Sequence[RetainedCheckpoint],
    in_use: Collection[str],
) -> list[RetentionVerdict]:
    """A verdict for each checkpoint, in their order. `in_use`: the URIs that running attempts have resumed from."""
    facts = _Facts(rules, {trial.number: trial for trial in trials}, _needed_by_trials(rules, trials), set(in_use))
    best, newest = _best(rules, trials), _newest(checkpoints, rules.keep)

    def verdict(one: RetainedCheckpoint) -> RetentionVerdict:
        reason = _why_needed(facts, one)
        if reason is not None:
            return RetentionVerdict(one, is_kept=True, why=reason)
        if one not in newest and not one.is_best:
            return RetentionVerdict(
                one, is_kept=False, why=f"checkpoints.keep is {rules.keep}, and its trial has newer ones"
            )
        return _by_rank(facts, one, best)

    return [verdict(one) for one in checkpoints]


@dataclass(frozen=True)
class _Facts:
    rules: RetentionRules
    trials: dict[int, RetainedTrial]
    needed: dict[str, str]
    in_use: set[str]


def _needed_by_trials(rules: RetentionRules, trials: Sequence[RetainedTrial]) -> dict[str, str]:
    """Why, by URI. The trial that continues from a checkpoint need not be the one that saved it."""
    retried = {} if rules.is_over and not rules.keep_last else dict(_resumed_by(trials, TRIAL_REVIVALS))
    needed = {uri: f"trial {number} resumes from it if it is retried" for uri, number in retried.items()}
    live = {uri: f"trial {number} resumes from it" for uri, number in _resumed_by(trials, LIVE_TRIAL)}
    return needed | live


def _resumed_by(trials: Sequence[RetainedTrial], statuses: Collection[TrialStatus]) -> Iterator[tuple[str, int]]:
    for trial in trials:
        if trial.status in statuses and trial.resume_uri is not None:
            yield trial.resume_uri, trial.number


def _why_needed(facts: _Facts, one: RetainedCheckpoint) -> str | None:
    trial = facts.trials[one.trial]
    if one.is_pinned:
        return "it is pinned"
    if one.uri in facts.in_use:
        return "a running attempt has resumed from it"
    if trial.status in LIVE_TRIAL:
        return f"trial {trial.number} is {trial.status}"
    if one.uri in facts.needed:
        return facts.needed[one.uri]
    if not trial.has_settled:
        return f"trial {trial.number} ended less than {SETTLED_SECONDS} s ago; its slot may still be writing"
    return None if one.agent is not None else "an external program saved it, and has to remove it"


def _by_rank(facts: _Facts, one: RetainedCheckpoint, best: Collection[int]) -> RetentionVerdict:
    trial, wanted = facts.trials[one.trial], facts.rules.keep_best_trials
    if wanted is None:
        return RetentionVerdict(
            one, is_kept=True, why="checkpoints.keep_best_trials is not set: all trials keep theirs"
        )
    if trial.is_on_front:
        return RetentionVerdict(
            one, is_kept=True, why=f"no completed trial beats trial {trial.number} in all objectives"
        )
    if trial.is_winner:
        why = f"trial {trial.number} is, or may be, among the winners that confirm runs again"
        return RetentionVerdict(one, is_kept=True, why=why)
    is_best = trial.number in best
    why = f"trial {trial.number} ({trial.status}) is {'' if is_best else 'not '}among the best {wanted}"
    return RetentionVerdict(one, is_kept=is_best, why=why)


def _best(rules: RetentionRules, trials: Sequence[RetainedTrial]) -> set[int]:
    """The eligible trials that fewer than `keep_best_trials` completed trials beat.

    Only completed trials, which cannot change any more, displace others. So no trial of which the checkpoints have
    been removed comes to be among the best later.
    """
    sign = sign_of(rules.direction)
    ranked = sorted(
        (sign * trial.value, trial.number, trial.status)
        for trial in trials
        if trial.value is not None and trial.status in ELIGIBLE_FOR_BEST
    )
    best: set[int] = set()
    better_count = 0
    for _, number, status in ranked:
        if better_count < (rules.keep_best_trials or 0):
            best.add(number)
        better_count += status is TrialStatus.COMPLETED
    return best


def _newest(checkpoints: Sequence[RetainedCheckpoint], keep: int) -> set[RetainedCheckpoint]:
    """The last `keep` of each trial, in the order of attempts and reports."""
    found: set[RetainedCheckpoint] = set()
    counts: dict[int, int] = {}
    for one in sorted(checkpoints, key=lambda one: (one.attempt, one.sequence), reverse=True):
        counts[one.trial] = counts.get(one.trial, 0) + 1
        if counts[one.trial] <= keep:
            found.add(one)
    return found
