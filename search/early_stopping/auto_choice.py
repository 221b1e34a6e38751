"""The choice of an early-stopping rule: by the problem, and by what trials have shown of how they run.

A function of both, so that the same facts always give the same rule.
"""

from dataclasses import dataclass

from search.early_stopping.rule import Rule
from search.early_stopping.rules.auto import Auto
from search.early_stopping.rules.hyperband import Hyperband
from search.early_stopping.rules.wrappable_rules import NoneSpec
from search.early_stopping.training_facts import MIN_RANKED, REDUCTION_FACTOR, Training
from search.mistakes import listed
from search.numbers_in_messages import counted
from search.problem import Problem

MIN_TRIALS = 10
"""With fewer trials a bracket has too few to compare: with six, promotion still trained 71 to 85 % of all steps."""
MIN_REPORTS = 3
"""With fewer reports in a training, nearly all of it is over when the first trials can be compared."""


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


def may_assume_length(problem: Problem) -> bool:
    """Whether trials may be compared by a length that the service assumes, before one has run to its end.

    Only where more trials run at the same time than have to run to their ends: the others show nothing new.
    """
    return problem.parallelism > MIN_RANKED and _why_never(problem) is None


def choose_rule(problem: Problem, training: Training | None, *, is_settled: bool = False) -> ChosenRule:
    """The rule `auto` stands for; it is `auto` itself as long as too little is known."""
    why_none = _why_never(problem) or (None if training is None else _why_no_rule(training))
    if why_none is not None:
        return ChosenRule(NoneSpec(), why_none)
    if training is None or not _is_known(problem, training, is_settled=is_settled):
        return ChosenRule(Auto(), _why_not_yet(problem, training))
    return _halving(problem, training)


def _is_known(problem: Problem, training: Training, *, is_settled: bool) -> bool:
    """Whether enough is known of trainings to compare trials."""
    if training.assumed_max_step is not None:
        return not training.is_length_assumed or _why_no_promotion(training) is None
    needed = trials_needed(problem, is_settled=is_settled, is_length_given=training.is_length_given)
    return training.trial_count >= needed


def _halving(problem: Problem, training: Training) -> ChosenRule:
    rule = Hyperband(
        max_step=training.length,
        min_step=training.rungs[0],
        reduction_factor=REDUCTION_FACTOR,
        weighted=True,
        whole_count=_whole_count(problem, training),
    )
    those = f"trials that fall behind from step {rule.min_step} on"
    if (obstacle := _why_no_promotion(training)) is not None:
        return ChosenRule(rule, f"{_seen(training)}; {those} are stopped, not paused, because {obstacle}")
    reason = f"{_seen(training)}{_times(training)}; {those} are paused, and may be promoted later"
    return ChosenRule(rule.model_copy(update={"promote": True, "extra_count": _extra_count(problem, training)}), reason)


def _seen(training: Training) -> str:
    if not training.report_count:
        return f"max_step is {training.max_step}"
    if training.is_length_assumed:
        come = f"trial {training.number} has come to step {training.last_step} with checkpoints"
        assumed = f"a training is assumed to have {counted(training.length, 'step')}"
        return f"no trial has run to the end yet, and {come}, so {assumed}"
    seen = f"trial {training.number} made {counted(training.report_count, 'report')} up to step {training.last_step}"
    if training.is_length_given:
        seen = f"max_step is {training.max_step}, and {seen}"
        if training.trial_count and training.last_step < training.rungs[0]:
            seen = f"{seen} (its last one: too early to be compared, so max_step may be wrong)"
    return seen


def _times(training: Training) -> str:
    """What else speaks for promotion, as far as it is known."""
    if training.is_length_assumed or training.start_seconds is None or training.whole_seconds is None:
        return ""
    times = f"a start takes {training.start_seconds:.3g} s, and a whole training {training.whole_seconds:.3g} s"
    return f" and saved checkpoints, and {times}"


def _extra_count(problem: Problem, training: Training) -> int:
    """One more trial passes each rung where few whole trials are known, because `gp` learns most from those.

    With a given length it is until the first one, which would come late. Where many trials run at the same time, it
    comes soon enough, and an additional one was measured to cost more than it brings.
    """
    if training.compares_first_trials:
        return 0 if training.trial_count or problem.parallelism > MIN_RANKED else 1
    return 0 if training.trial_count >= MIN_RANKED else 1


def _whole_count(problem: Problem, training: Training) -> int:
    """How many trials run to their ends where many run at the same time, and are compared from the start.

    With an assumed length they show the real one, and whether early ranks tell anything: without them, searches on
    curves that mislead were measured to have up to six times the regret. With a given length, one is enough for such
    curves; more of them were measured to cost more than they bring.
    """
    if not training.compares_first_trials or problem.parallelism <= MIN_RANKED:
        return 0
    return 1 if training.is_length_given else MIN_RANKED


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
    may_be_sooner = training is None and may_assume_length(problem)
    sooner = ", or a running one has made three reports and saved a checkpoint" if may_be_sooner else ""
    return f"no trial is stopped until {needed} trials have run to the end ({count} so far){sooner}: {why}"


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
