"""The choice of an early-stopping rule: by the problem, and by what trials have shown of how they run.

A function of both, so that the same facts always give the same rule.
"""

from dataclasses import dataclass, replace

from search.early_stopping.rule import Rule
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.wrappable import NoneSpec
from search.problem import Problem

MIN_TRIALS = 10
"""With fewer trials, those of one bracket are too few to be compared."""
MIN_REPORTS = 3
"""With fewer reports in a training, nearly all of it is over when the first trials can be compared."""
REDUCTION_FACTOR = 3
LOWEST_RUNG = REDUCTION_FACTOR**3
"""The lowest rung is at this part of a training."""
MAX_START_SHARE = 0.5
"""Of a whole training. Up to here promotion was measured to lose nothing to stopping when starts become dearer, because
each trial that is stopped is also followed by the start of another one."""


@dataclass(frozen=True)
class Training:
    """What a trial that has run to its end has shown of how trials run.

    `number` is the trial's. `checkpoint_gap` is the largest number of steps between two of its checkpoints, also before
    the first one; None if it saved none. `start_seconds` passed from the claim to the first report, without the time of
    a step, and `seconds` is the time of all of its steps; both are None if they are not known.
    """

    number: int
    report_count: int
    last_step: int
    checkpoint_gap: int | None = None
    start_seconds: float | None = None
    seconds: float | None = None

    @property
    def starts_cheaply(self) -> bool:
        """Whether a start takes little time beside a whole training."""
        if self.start_seconds is None or self.seconds is None:
            return False
        return self.start_seconds <= MAX_START_SHARE * self.seconds

    @property
    def min_step(self) -> int:
        """The lowest step at which trials can be compared: a part of the training, and not before the first report."""
        return max(1, -(-self.last_step // LOWEST_RUNG), self.last_step // self.report_count)

    def is_short_beside(self, last_step: int) -> bool:
        """Whether a training up to that step is so much longer that another rung fits into it."""
        return last_step >= REDUCTION_FACTOR * max(1, self.last_step)

    def after(self, ended: "Training") -> "Training":
        """What is known after another trial has ended; the same unless it has shown something that matters."""
        if self.is_short_beside(ended.last_step):
            return ended
        if ended.starts_cheaply and not self.starts_cheaply:
            return replace(self, start_seconds=ended.start_seconds, seconds=ended.seconds)
        return self


@dataclass(frozen=True)
class ChosenRule:
    """`reason` is a sentence for the user."""

    rule: Rule
    reason: str


def choose_rule(problem: Problem, training: Training | None) -> ChosenRule:
    """The rule `auto` stands for. Without a training it may be `auto` itself: the choice comes with the first one."""
    if (why_not := _why_never(problem)) is not None:
        return ChosenRule(NoneSpec(), why_not)
    if training is None:
        reason = "no trial is stopped until the first one has completed and shown how many steps a training has"
        return ChosenRule(Auto(), reason)
    count, last = training.report_count, training.last_step
    if count < MIN_REPORTS or last < MIN_REPORTS:
        reports = "one report" if count == 1 else f"{count} reports"
        return ChosenRule(NoneSpec(), f"trial {training.number} made {reports} up to step {last}: too few to compare")
    seen = f"trial {training.number} made {count} reports up to step {last}"
    obstacle = _why_no_promotion(training)
    if obstacle is not None:
        rule = Hyperband(max_step=last, min_step=training.min_step, reduction_factor=REDUCTION_FACTOR)
        return ChosenRule(rule, f"{seen}; trials that fall behind are stopped, not paused, because {obstacle}")
    min_step = max(training.min_step, training.checkpoint_gap or 1)
    rule = Hyperband(max_step=last, min_step=min_step, reduction_factor=REDUCTION_FACTOR, promote=True, extra_count=1)
    start = f"a start takes {training.start_seconds:.3g} s of {training.seconds:.3g} s of training"
    reason = f"{seen} and saved checkpoints, and {start}; trials that fall behind are paused, and may be promoted later"
    return ChosenRule(rule, reason)


def _why_never(problem: Problem) -> str | None:
    """Why no trial is stopped, whatever a training is like."""
    if len(problem.directions) > 1:
        return f"trials have {len(problem.directions)} objectives, and early stopping compares by one metric"
    if problem.constrained:
        return "early stopping knows nothing of constraints, and could stop the only feasible trials"
    if problem.max_trials is not None and problem.max_trials < MIN_TRIALS:
        return f"{problem.max_trials} trials are too few to compare them early; from {MIN_TRIALS} on some are stopped"
    return None


def _why_no_promotion(training: Training) -> str | None:
    gap = training.checkpoint_gap
    if gap is None:
        return "it saved no checkpoint to continue from"
    if gap * REDUCTION_FACTOR > training.last_step:
        return f"it trained {gap} steps without saving a checkpoint"
    if training.start_seconds is None or training.seconds is None:
        return "it has not shown what a start costs"
    if not training.starts_cheaply:
        return f"another start takes {training.start_seconds:.3g} s, and a whole training {training.seconds:.3g} s"
    return None
