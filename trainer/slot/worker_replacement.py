"""When a slot's warm workers are replaced by new processes."""

import logging
from dataclasses import replace

from trainer.ray_train.trainer_kinds import BACKENDS
from trainer.slot.assignment import TrainerSpec
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.outcome import Outcome
from trainer.worker.failures import CANNOT_START, PREEMPTED, USER_ERROR, Failure

logger = logging.getLogger("paceline")

TRIALS_PER_WORKER = 100
"""The limit with `reuse_workers: true`."""

MAX_SECOND_TRIES = 3
"""How many failures of used workers are tried again in new ones before it is known which of both is to blame."""

SUFFICIENT_SUCCESSES = 2
"""After so many of these have succeeded, used workers are to blame. One may be chance."""


class WorkerReuse:
    """Counts the trials that the present worker processes have served, and finds out whether they can serve several.

    Some packages cannot be imported twice in a process: a library that they register classes with refuses the second
    registration. Others do so in the training function. An attempt that may have failed for that reason is repeated in
    new processes, which shows whether used ones are to blame. If they are, each trial gets new ones from then on.
    """

    def __init__(self) -> None:
        self._served = 0
        self._served_before = 0
        self._are_reusable = True
        self._fails_in_new_workers = False
        self._tried_again: set[str] = set()
        self._successes = 0

    def begin(self) -> None:
        """An attempt is about to begin."""
        self._served_before = self._served

    def why_replace(self, attempt: Attempt, shutdown_error: BaseException | None) -> str | None:
        """Why the workers are to be replaced after this attempt, if they are; the count then starts again.

        `shutdown_error` is what Ray raised when it shut down a run that had succeeded.
        """
        self._served += 1
        reason = attempt.why_workers_not_reusable()
        if reason is None and shutdown_error is not None:
            reason = f"Ray could not shut the run down: {shutdown_error}"
        reason = reason or self._why_too_old(attempt.assignment.trainer)
        if reason is not None:
            self._served = 0
        return reason

    def accepted(self, outcome: Outcome, attempt: Attempt) -> Outcome:
        """The outcome of the attempt, or another one with which it is repeated, if used workers may be to blame."""
        if self._served_before == 0:
            self._learn_from_new_workers(outcome, attempt)
            return outcome
        failure = outcome.failure
        if failure is not None and failure.kind == CANNOT_START and outcome.began and not attempt.began_training:
            self._replace_after_each_trial(failure.message)
            return _repeated("the package cannot be imported again", failure)
        if failure is not None and self._may_be_to_blame(failure, attempt):
            self._tried_again.add(attempt.assignment.trial)
            return _repeated("the training function failed before its first report", failure)
        return outcome

    def _may_be_to_blame(self, failure: Failure, attempt: Attempt) -> bool:
        is_of_start = failure.kind == USER_ERROR and attempt.began_training and not attempt.has_reported
        is_known = self._fails_in_new_workers or len(self._tried_again) >= MAX_SECOND_TRIES
        return is_of_start and not is_known and attempt.assignment.trainer.command is None

    def _learn_from_new_workers(self, outcome: Outcome, attempt: Attempt) -> None:
        if outcome.failure is None or attempt.has_reported:
            self._successes += attempt.assignment.trial in self._tried_again
            if self._successes >= SUFFICIENT_SUCCESSES and self._are_reusable:
                self._replace_after_each_trial("trials that failed in used processes have succeeded in new ones")
        elif outcome.failure.kind == USER_ERROR:
            self._fails_in_new_workers = True

    def _replace_after_each_trial(self, why: str) -> None:
        self._are_reusable = False
        logger.warning("each trial gets new worker processes from now on: %s", why)

    def _why_too_old(self, trainer: TrainerSpec) -> str | None:
        """What a trial leaves behind unseen, such as fragmented memory, adds up."""
        limit = TRIALS_PER_WORKER if trainer.reuse_workers is True else int(trainer.reuse_workers)
        if not (BACKENDS[trainer.kind].is_warm and self._are_reusable):
            limit = 1
        return f"they have served {self._served} trial{'s' * (self._served != 1)}" if self._served >= limit else None


def _repeated(what: str, failure: Failure) -> Outcome:
    message = f"{what} in a process that has served another trial: {failure.message}"
    repeated = replace(failure, kind=PREEMPTED, message=f"{message}; the trial is repeated in new processes")
    return Outcome.failed(repeated, began=True)
