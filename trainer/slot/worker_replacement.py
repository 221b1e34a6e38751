"""When a slot's warm workers are replaced by new processes."""

import logging
from dataclasses import replace

from trainer.ray_train.trainer_kinds import BACKENDS
from trainer.slot.assignment import TrainerSpec
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.outcome import Outcome
from trainer.worker.failures import CANNOT_START, PREEMPTED

logger = logging.getLogger("paceline")

TRIALS_PER_WORKER = 100
"""The limit with `reuse_workers: true`."""


class WorkerReuse:
    """Counts the trials that the present worker processes have served."""

    def __init__(self) -> None:
        self._served = 0
        self._served_before = 0
        self._is_importable_again = True

    def why_replace(self, attempt: Attempt, shutdown_error: BaseException | None) -> str | None:
        """Why the workers are to be replaced after this attempt, if they are; the count then starts again.

        `shutdown_error` is what Ray raised when it shut down a run that had succeeded.
        """
        self._served_before = self._served
        self._served += 1
        reason = attempt.why_workers_not_reusable()
        if reason is None and shutdown_error is not None:
            reason = f"Ray could not shut the run down: {shutdown_error}"
        reason = reason or self._why_too_old(attempt.assignment.trainer)
        if reason is not None:
            self._served = 0
        return reason

    def accepted(self, outcome: Outcome, *, began_training: bool) -> Outcome:
        """The outcome of the newest attempt, or another one if only used workers are to blame.

        Some packages cannot be imported twice in a process: a library that they register classes with refuses the
        second registration. Such an attempt is repeated, and the slot's workers serve one trial each from then on.
        """
        failure = outcome.failure
        is_import = outcome.began and not began_training
        if failure is None or failure.kind != CANNOT_START or not is_import or self._served_before == 0:
            return outcome
        self._is_importable_again = False
        logger.warning("each trial gets new worker processes from now on: %s", failure.message)
        message = f"the package cannot be imported again in a process that has served another trial: {failure.message}"
        repeated = replace(failure, kind=PREEMPTED, message=f"{message}; the trial is repeated in new processes")
        return Outcome.failed(repeated, began=True)

    def _why_too_old(self, trainer: TrainerSpec) -> str | None:
        """What a trial leaves behind unseen, such as fragmented memory, adds up."""
        limit = TRIALS_PER_WORKER if trainer.reuse_workers is True else int(trainer.reuse_workers)
        if not (BACKENDS[trainer.kind].is_warm and self._is_importable_again):
            limit = 1
        return f"they have served {self._served} trial{'s' * (self._served != 1)}" if self._served >= limit else None
