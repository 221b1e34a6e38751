"""What trials have shown of a whole training: its steps, reports, checkpoints and starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Self

REDUCTION_FACTOR = 3
LOWEST_RUNG = REDUCTION_FACTOR**3
"""The lowest rung is at this part of a training."""
CHANCE = 0.5
"""The share of pairs that ranks have in the right order when they tell nothing."""
MIN_RANKED = 4
"""So many whole trials show whether early ranks agree with those of the ends: six pairs."""
REPORTS_BEFORE_RUNG = 3
"""The lowest rung of an assumed length is at the third report: a 27th of a training of 81 reports, and a third of one
of nine."""
TRIALS_PER_LENGTH = 4
"""An assumed length holds for so many trials, for each one that may run at the same time."""
MAX_TIMES_TRIPLED = 40
MAX_LENGTH = 2**53
"""The largest step that a rule may name."""
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
    trial has run to its end, and `report_count` is 0 as long as no trial has shown anything. `assumed_max_step` is what
    the service has assumed in its place, so that trials are compared before one has run to its end; from that end on,
    it only says that they have been.
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
    assumed_max_step: int | None = None

    @classmethod
    def given(cls, max_step: int) -> Self:
        """What the user says, before a trial has shown anything."""
        return cls(number=0, report_count=0, last_step=0, trial_count=0, max_step=max_step)

    @property
    def is_length_given(self) -> bool:
        return self.max_step is not None

    @property
    def is_length_assumed(self) -> bool:
        """Whether no trial has shown the length yet, and the service goes by an assumed one."""
        return self.assumed_max_step is not None and not self.trial_count

    @property
    def compares_first_trials(self) -> bool:
        """Whether trials are compared before one has run to its end."""
        return self.is_length_given or self.assumed_max_step is not None

    @property
    def length(self) -> int:
        """The last step of a whole training: the given one, unless the trial shows that it must be wrong.

        A small difference must not move the rungs, because trials that are paused below the new ones continue.
        """
        if self.assumed_max_step is not None and self.is_length_assumed:
            return self.assumed_max_step
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

    @property
    def shows_lowest_rung(self) -> bool:
        """Whether the trial, which still trains, has come to a step at which others may be compared, and paused.

        A step to which trials come in less time than they take to start is too early: most of the time would go to
        starts.
        """
        if self.report_count < REPORTS_BEFORE_RUNG or self.start_seconds is None or self.seconds is None:
            return False
        return self.checkpoint_gap is not None and self.start_seconds <= self.seconds

    def for_trials(self, count: int, parallelism: int) -> "Training":
        """The training with the length that is assumed once so many trials have been created.

        At first its lowest rung is where the trial is. It is tripled after each TRIALS_PER_LENGTH times `parallelism`
        trials that follow the first ones: in a long training, all trials would otherwise be created before the ranks
        at the rungs tell anything.
        """
        at_once = max(parallelism, MIN_RANKED + 1)  # as when it was assumed, if it has been lowered far since
        times = min(max(0, count - at_once) // (TRIALS_PER_LENGTH * at_once), MAX_TIMES_TRIPLED)
        length = LOWEST_RUNG * max(1, self.last_step) * REDUCTION_FACTOR**times
        return replace(self, assumed_max_step=max(self.assumed_max_step or 0, min(length, MAX_LENGTH)))

    def after(self, ended: "Training") -> "Training":
        """What is known after another trial has ended; the same unless it has shown something that matters."""
        is_first_end = self.trial_count < ended.trial_count == 1
        is_first_end &= self.is_length_assumed or ended.last_step >= self.last_step
        if self.is_short_beside(ended.last_step) or is_first_end:
            return ended if ended.seconds is not None else ended.with_start_of(self)
        if ended.starts_cheaply and not self.starts_cheaply:
            return self.with_start_of(ended)
        return self

    def with_start_of(self, other: "Training") -> "Training":
        """Return what this training would have shown with the start and the time for a step of the other one."""
        seconds = None if other.seconds is None else other.seconds * max(1, self.last_step) / max(1, other.last_step)
        return replace(self, start_seconds=other.start_seconds, seconds=seconds)


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
