"""The choice of an early-stopping rule: by the problem, and by what trials have shown of how they run.

A function of both, so that the same facts always give the same rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Self

from search.early_stopping.rule import Rule
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.standalone_rules import NoneSpec
from search.mistakes import listed
from search.numbers_in_messages import counted
from search.problem import Problem

MIN_TRIALS = 10
"""With fewer trials a bracket has too few to compare: with six, promotion still trained 71 to 85 % of all steps."""
MIN_REPORTS = 3
"""With fewer reports in a training, nearly all of it is over when the first trials can be compared."""
REDUCTION_FACTOR = 3
LOWEST_RUNG = REDUCTION_FACTOR**3
"""The lowest rung is at this part of a training."""
MIN_RANKED = 4
"""So many whole trials show whether early ranks agree with those of the ends: six pairs."""
CHANCE = 0.5
"""The share of pairs that ranks have in the right order when they tell nothing."""
MAX_START_SHARE = 0.5
"""Of a whole training. Up to here promotion was measured to lose nothing to stopping when starts become dearer, because
each trial that is stopped is also followed by the start of another one."""


@dataclass(frozen=True)
class Training:
    """What a trial that has run to its end has shown of a whole training; any trial, if its length is known otherwise.

    `number` is the trial's. `first_step` is that of its first report. `checkpoint_gap` is the largest number of steps
    between two of its checkpoints, also before the first one; None if it saved none. `start_seconds` passed from the
    claim to the first report, without the time of a step, and `seconds` is the time of all of its steps; both are None
    if they are not known. By then `trial_count` trials have run to their ends. `concordances` has by rung the share of
    their pairs that were in the order of their ends; empty with fewer than MIN_RANKED of them.

    `max_step` is the last step of a whole training, if the user has given it. Then `trial_count` only says whether this
    trial has run to its end, and `report_count` is 0 as long as no trial has shown anything.
    """

    number: int
    report_count: int
    last_step: int
    first_step: int = 0
    checkpoint_gap: int | None = None
    start_seconds: float | None = None
    seconds: float | None = None
    trial_count: int = 1
    concordances: Mapping[str, float] = field(default_factory=dict)
    max_step: int | None = None

    @classmethod
    def given(cls, max_step: int) -> Self:
        """What the user says, before a trial has shown anything."""
        return cls(number=0, report_count=0, last_step=0, trial_count=0, max_step=max_step)

    @property
    def is_length_given(self) -> bool:
        return self.max_step is not None

    @property
    def length(self) -> int:
        """The last step of a whole training: the given one, unless the trial shows that it must be wrong.

        A small difference must not move the rungs, because trials that are paused below the new ones continue.
        """
        if self.max_step is None or self.last_step >= REDUCTION_FACTOR * self.max_step:
            return self.last_step
        return self.max_step if self._reported_from <= self.max_step else self.last_step

    @property
    def _reported_from(self) -> int:
        """The step from which trials can be compared by their reports."""
        return max(self.first_step, self.last_step // max(1, self.report_count))

    @property
    def whole_report_count(self) -> int | None:
        """The reports of a whole training, if it goes on as the trial did; None if that is not known."""
        if self.last_step >= self.length:
            return self.report_count
        if self.report_count < 2:  # noqa: PLR2004 - no interval
            return None
        return 1 + (self.report_count - 1) * (self.length - self.first_step) // max(1, self.last_step - self.first_step)

    @property
    def whole_seconds(self) -> float | None:
        """The time of all steps of a whole training, if it goes on as the trial did."""
        return None if self.seconds is None else self.seconds * max(1, self.length) / max(1, self.last_step)

    @property
    def starts_cheaply(self) -> bool:
        """Whether a start takes little time beside a whole training."""
        if self.start_seconds is None or self.whole_seconds is None:
            return False
        return self.start_seconds <= MAX_START_SHARE * self.whole_seconds

    @property
    def saves_often(self) -> bool:
        """Whether there is a checkpoint in each third of a training."""
        return self.checkpoint_gap is not None and self.checkpoint_gap * REDUCTION_FACTOR <= self.length

    @property
    def rungs(self) -> Sequence[int]:
        """The steps at which trials can be compared, not before the first report and checkpoint."""
        first = max(1, -(-self.length // LOWEST_RUNG), self._reported_from)
        if self.saves_often:
            first = max(first, self.checkpoint_gap or 0)
        found = [first]
        while found[-1] * REDUCTION_FACTOR < self.length:
            found.append(found[-1] * REDUCTION_FACTOR)
        return found

    @property
    def ranks_tell(self) -> bool:
        """Whether ranks at any rung agree with those of the ends more than by chance, as far as that is known.

        A few trials show no more than that. Which rungs predict the ends well, brackets learn from later trials; to
        leave out rungs for what four trials have shown was measured to cost more.
        """
        return not self.concordances or max(self.concordances.values()) > CHANCE

    def is_short_beside(self, last_step: int) -> bool:
        """Whether a training up to that step is so much longer that another rung fits into it, or the first one."""
        return not self.report_count or last_step >= REDUCTION_FACTOR * max(1, self.last_step)

    def after(self, ended: "Training") -> "Training":
        """What is known after another trial has ended; the same unless it has shown something that matters."""
        is_first_end = self.trial_count < ended.trial_count == 1 and ended.last_step >= self.last_step
        if self.is_short_beside(ended.last_step) or is_first_end:
            return ended if ended.seconds is not None else ended.with_start_of(self)
        if ended.starts_cheaply and not self.starts_cheaply:
            return self.with_start_of(ended)
        return self

    def with_start_of(self, other: "Training") -> "Training":
        """With the other's start, and its time for a step."""
        seconds = None if other.seconds is None else other.seconds * max(1, self.last_step) / max(1, other.last_step)
        return replace(self, start_seconds=other.start_seconds, seconds=seconds)


@dataclass(frozen=True)
class ChosenRule:
    """`reason` is a sentence for the user."""

    rule: Rule
    reason: str


def trials_needed(problem: Problem, *, is_settled: bool = False, is_length_given: bool = False) -> int:
    """How many trials run to their ends before a rule is chosen: those that run at the same time anyway.

    `is_settled`: a rule that stops trials has been chosen already. More whole trials are not waited for then, because
    they would be those that the rule has let through, whose ranks mislead. None is waited for if the length of a
    training is given.
    """
    if is_length_given:
        return 0
    return 1 if is_settled else min(MIN_RANKED, problem.parallelism)


def concordance(early: Sequence[float], late: Sequence[float]) -> float:
    """The share of pairs of trials that both sequences have in the same order; a tie counts half."""
    pairs = [
        _sign(early[one], early[other]) * _sign(late[one], late[other])
        for one, other in combinations(range(len(early)), 2)
    ]
    return sum(0.5 + product / 2 for product in pairs) / len(pairs)


def _sign(one: float, other: float) -> int:
    """The sign of their difference, which may be too large or too small for a float."""
    return (one > other) - (one < other)


def choose_rule(problem: Problem, training: Training | None, *, is_settled: bool = False) -> ChosenRule:
    """The rule `auto` stands for; it is `auto` itself as long as fewer trials than needed have run to their ends."""
    why_none = _why_never(problem) or (None if training is None else _why_no_rule(training))
    if why_none is not None:
        return ChosenRule(NoneSpec(), why_none)
    if training is None or training.trial_count < trials_needed(
        problem, is_settled=is_settled, is_length_given=training.is_length_given
    ):
        return ChosenRule(Auto(), _why_not_yet(problem, training))
    return _halving(problem, training)


def _halving(problem: Problem, training: Training) -> ChosenRule:
    rule = Hyperband(
        max_step=training.length,
        min_step=training.rungs[0],
        reduction_factor=REDUCTION_FACTOR,
        weighted=True,
    )
    those = f"trials that fall behind from step {rule.min_step} on"
    if (obstacle := _why_no_promotion(training)) is not None:
        return ChosenRule(rule, f"{_seen(training)}; {those} are stopped, not paused, because {obstacle}")
    reason = f"{_seen(training)}; {those} are paused, and may be promoted later"
    return ChosenRule(rule.model_copy(update={"promote": True, "extra_count": _extra_count(problem, training)}), reason)


def _seen(training: Training) -> str:
    if not training.report_count:
        return f"max_step is {training.max_step}"
    seen = f"trial {training.number} made {counted(training.report_count, 'report')} up to step {training.last_step}"
    if training.is_length_given:
        seen = f"max_step is {training.max_step}, and {seen}"
    if training.trial_count and training.last_step < training.rungs[0]:
        seen = f"{seen}, its last one, so that it was not compared: is max_step right?"
    if _why_no_promotion(training) is not None or training.start_seconds is None or training.whole_seconds is None:
        return seen
    times = f"a start takes {training.start_seconds:.3g} s, and a whole training {training.whole_seconds:.3g} s"
    return f"{seen} and saved checkpoints, and {times}"


def _extra_count(problem: Problem, training: Training) -> int:
    """One more trial passes each rung where few whole trials are known, because `gp` learns most from those.

    With a given length it is until the first one, which would come late. Where many trials run at the same time, it
    comes soon enough, and an additional one was measured to cost more than it brings.
    """
    if training.is_length_given:
        return 0 if training.trial_count or problem.parallelism > MIN_RANKED else 1
    return 0 if training.trial_count >= MIN_RANKED else 1


def _why_never(problem: Problem) -> str | None:
    """Why no trial is stopped, whatever a training is like."""
    if len(problem.directions) > 1:
        return f"trials have {len(problem.directions)} objectives, and early stopping compares by one metric"
    if problem.constrained:
        return "early stopping ignores constraints, and could stop the only feasible trials"
    if problem.max_trials is not None and problem.max_trials < MIN_TRIALS:
        budget, lacking = counted(problem.max_trials, "trial"), MIN_TRIALS - problem.max_trials
        return f"a budget of {budget} is too small to stop trials early; raise limits.max_trials by {lacking} or more"
    return None


def _why_no_rule(training: Training) -> str | None:
    """Why no trial is stopped, as far as trainings have shown."""
    count, last = training.whole_report_count, training.length
    if last < MIN_REPORTS or (count is not None and count < MIN_REPORTS):
        of_whole = "" if count in (None, training.report_count) else f", which makes {count} in a whole training"
        return f"{_seen(training)}{of_whole}; trials are compared from {MIN_REPORTS} reports and {MIN_REPORTS} steps on"
    if not training.ranks_tell:
        *others, last_rung = training.rungs
        where = f"steps {listed(others)} and {last_rung}" if others else f"step {last_rung}"
        return f"the ranking of the first {training.trial_count} trials at {where} did not predict their final ranking"
    return None


def _why_not_yet(problem: Problem, training: Training | None) -> str:
    count, needed = 0 if training is None else training.trial_count, trials_needed(problem)
    if needed == 1:
        why = "the rule is chosen from its reports and checkpoints"
        return f"no trial is stopped until the first trial has run to the end: {why}"
    why = "the rule is chosen from their reports and checkpoints"
    return f"no trial is stopped until {needed} trials have run to the end ({count} so far): {why}"


def _why_no_promotion(training: Training) -> str | None:
    if not training.report_count:
        return None
    gap = training.checkpoint_gap
    if gap is None:
        return "it saved no checkpoint to continue from"
    if not training.saves_often:
        return f"it trained {counted(gap, 'step')} without saving a checkpoint"
    if training.start_seconds is None or training.whole_seconds is None:
        return None if training.is_length_given else "its start-up time is not known"
    if not training.starts_cheaply:
        whole = f"a whole training ({training.whole_seconds:.3g} s)"
        return f"a restart takes {training.start_seconds:.3g} s, more than half of {whole}"
    return None
