"""Whether a slot's warm workers are used for the next trial, or replaced by new processes."""

import logging
from dataclasses import replace

from trainer.ray_train.trainer_kinds import BACKENDS
from trainer.slot.assignment import TrainerSpec
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.outcome import COMPLETED, AttemptOutcome
from trainer.worker.failures import CANNOT_START, PREEMPTED, USER_ERROR, Failure

logger = logging.getLogger("paceline")

TRIALS_PER_WORKER = 100
"""The limit with `reuse_workers: true`."""

MAX_SUSPICIONS = 3
"""How many trials in a row are repeated because they failed in used workers, without a sign of what is to blame."""

SUFFICIENT_SUCCESSES = 2
"""How many trials in a row, each after a failure in used workers, must succeed in new ones until used ones are to
blame. One may be chance."""

ADVICE = (
    "this process ran other trials before: if only later trials fail like this, because of what earlier ones have left "
    "in a library, set trainer.reuse_workers: false"
)

Process = tuple[str, int]
"""The id of a Ray node, and the id of a process on it."""


class WorkerReuse:
    """Counts the trials that the present workers have served, and finds out whether workers can serve several.

    Some packages cannot be imported twice in a process: a library that they register classes with refuses the second
    registration. Others do so in the training function. A trial that may have failed for that reason is repeated, once,
    which shows whether used workers are to blame: the slot has new ones after each failure. If they are to blame, each
    trial gets new workers from then on.

    A trial that has reported is not repeated: it may have trained for hours. There the next trial, in the new workers,
    shows the same.
    """

    def __init__(self) -> None:
        self._served = 0
        self._are_reusable = True
        self._used: set[Process] = set()
        self._used_before: set[Process] = set()
        self._repeated: set[str] = set()
        self._suspicions = 0
        self._succeeded: set[str] = set()
        self._are_failures_real = False
        self._has_failed_late = False
        self._successes_after_late_failures = 0

    def begin(self) -> None:
        """An attempt is about to begin."""
        self._used_before = set(self._used)

    def why_replace(self, attempt: Attempt, shutdown_error: BaseException | None) -> str | None:
        """Why the workers are to be replaced after this attempt, if they are; the count then starts again.

        `shutdown_error` is what Ray raised when it shut down a run that had succeeded.
        """
        self._served += 1
        self._used |= _processes(attempt)
        reason = attempt.why_workers_not_reusable()
        if reason is None and shutdown_error is not None:
            reason = f"Ray could not shut the run down: {shutdown_error}"
        reason = reason or self._why_too_old(attempt.assignment.trainer)
        if reason is not None:
            self._served = 0
            self._used.clear()
        return reason

    def accepted(self, outcome: AttemptOutcome, attempt: Attempt) -> AttemptOutcome:
        """The outcome of the attempt, or another one with which it is repeated, if used workers may be to blame."""
        if not _processes(attempt) & self._used_before:
            self._learn_from_new_workers(outcome, attempt)
            return outcome
        failure = outcome.failure
        if failure is not None and failure.kind == CANNOT_START and outcome.began and not attempt.began_training:
            self._replace_after_each_trial(failure.message)
            return _repeated("the package cannot be imported again", failure)
        if failure is not None and self._may_be_to_blame(failure, attempt):
            self._repeated.add(attempt.assignment.trial)
            self._suspicions += 1
            return _repeated("the training function failed before its first report", failure)
        if attempt.has_reported:
            self._suspicions = 0
            self._succeeded.clear()
            return self._learn_from_late_end(outcome, attempt)
        return outcome

    def _learn_from_late_end(self, outcome: AttemptOutcome, attempt: Attempt) -> AttemptOutcome:
        """A trial has reported in used workers. Returns the outcome, with advice if they may be to blame.

        An exception that the user's package has raised itself, as for a missing key, rarely comes from them, nor does a
        report that the service refuses. They have no advice, which would mislead, but count like others.
        """
        failure = outcome.failure
        if failure is None:
            self._has_failed_late = False
            self._successes_after_late_failures = 0
        elif failure.kind == USER_ERROR and attempt.assignment.trainer.command is None:
            self._has_failed_late = True
            if failure.is_of_package or failure.is_refusal:
                return outcome
            return replace(outcome, failure=replace(failure, message=f"{failure.message}; {ADVICE}"))
        return outcome

    def _may_be_to_blame(self, failure: Failure, attempt: Attempt) -> bool:
        trial, trainer = attempt.assignment.trial, attempt.assignment.trainer
        is_of_start = failure.kind == USER_ERROR and attempt.began_training and not attempt.has_reported
        if not is_of_start or trial in self._repeated or trainer.command is not None:
            return False
        return not self._are_reusable or not (self._are_failures_real or self._suspicions >= MAX_SUSPICIONS)

    def _learn_from_new_workers(self, outcome: AttemptOutcome, attempt: Attempt) -> None:
        if attempt.assignment.trial in self._repeated:
            self._learn_from_repeated_trial(outcome, attempt)
        if self._has_failed_late:
            self._learn_after_late_failure(outcome)

    def _learn_after_late_failure(self, outcome: AttemptOutcome) -> None:
        """A trial that was stopped tells nothing: it may not have come as far."""
        if outcome.status == COMPLETED:
            self._has_failed_late = False
            self._successes_after_late_failures += 1
            if self._successes_after_late_failures >= SUFFICIENT_SUCCESSES and self._are_reusable:
                self._replace_after_each_trial(
                    "trials fail in used processes, and those after them succeed in new ones"
                )
        elif outcome.failure is not None and outcome.failure.kind == USER_ERROR:
            self._has_failed_late = False
            self._successes_after_late_failures = 0

    def _learn_from_repeated_trial(self, outcome: AttemptOutcome, attempt: Attempt) -> None:
        trial = attempt.assignment.trial
        if attempt.has_reported or outcome.status == COMPLETED:
            self._succeeded.add(trial)
            if len(self._succeeded) >= SUFFICIENT_SUCCESSES and self._are_reusable:
                self._replace_after_each_trial("trials that failed in used processes have succeeded in new ones")
        elif outcome.failure is not None and outcome.failure.kind == USER_ERROR:
            self._are_failures_real = True

    def _replace_after_each_trial(self, why: str) -> None:
        self._are_reusable = False
        logger.warning("each trial gets new worker processes from now on: %s", why)

    def _why_too_old(self, trainer: TrainerSpec) -> str | None:
        """What a trial leaves behind unseen, such as fragmented memory, adds up."""
        limit = TRIALS_PER_WORKER if trainer.reuse_workers is True else int(trainer.reuse_workers)
        if not (BACKENDS[trainer.kind].is_warm and self._are_reusable):
            limit = 1
        return f"they have served {self._served} trial{'s' * (self._served != 1)}" if self._served >= limit else None


def _processes(attempt: Attempt) -> set[Process]:
    return {(started.node, started.pid) for started in attempt.ranks.started.values()}


def _repeated(what: str, failure: Failure) -> AttemptOutcome:
    message = f"{what} in a process that has served another trial: {failure.message}; the trial is repeated"
    return AttemptOutcome.failed(replace(failure, kind=PREEMPTED, message=message), began=True)
