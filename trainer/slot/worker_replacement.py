"""When a slot's warm workers are replaced by new processes."""

from trainer.ray_train.trainer_kinds import BACKENDS
from trainer.slot.assignment import TrainerSpec
from trainer.slot.attempt.attempt import Attempt

TRIALS_PER_WORKER = 100
"""The limit with `reuse_workers: true`."""


class WorkerReuse:
    """Counts the trials that the present worker processes have served."""

    def __init__(self) -> None:
        self._served = 0

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

    def _why_too_old(self, trainer: TrainerSpec) -> str | None:
        """What a trial leaves behind unseen, such as fragmented memory, adds up."""
        limit = TRIALS_PER_WORKER if trainer.reuse_workers is True else int(trainer.reuse_workers)
        if not BACKENDS[trainer.kind].is_warm:
            limit = 1
        return f"they have served {self._served} trial{'s' * (self._served != 1)}" if self._served >= limit else None
