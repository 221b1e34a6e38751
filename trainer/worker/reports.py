"""`ray.train.report()` in a worker: each report waits for the slot's answer, and may end the training function."""

import logging
from typing import Any, NoReturn

import ray

from trainer.decisions import CONTINUE
from trainer.phase_times import PhaseTimes
from trainer.storable_values import json_metrics, storable_text
from trainer.worker.checkpoint_names import checked_name
from trainer.worker.logs.masker import Masker
from trainer.worker.messages import RankReport
from trainer.worker.process_end.oom_counter import read_oom_kills

STOP_MESSAGE = (
    "the service has ended this attempt at a report (early stopping, a limit, a user, or a node that is drained); "
    "let this exception pass: code that catches it must raise it again"
)
REPORT_FAILED = "an earlier ray.train.report() has failed, and its error was caught: no further report can be made"

logger = logging.getLogger("paceline")


class StopTraining(BaseException):
    """Leaves the training function through `ray.train.report()` when the attempt is to stop.

    It is not an Exception, so that the user's `except Exception` does not catch it.
    """


class Reporter:
    """Sends a rank's reports, with secrets masked, to the slot and obeys the answers. `run` names the attempt.

    `has_stopped`: a report has raised StopTraining, which the user's code may have caught. `error`: that of an earlier
    report, if it was because of that.
    """

    def __init__(
        self,
        slot: Any,
        run: str,
        rank: int,
        world_size: int,
        oom_counter: str | None,
        masker: Masker,
        times: PhaseTimes,
        *,
        storage_is_uri: bool = False,
    ) -> None:
        self._slot = slot
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._sequence = 0
        self.has_stopped = False
        self.error: BaseException | None = None
        self._warned: set[str] = set()
        self._oom_counter = oom_counter
        self._masker = masker
        self._times = times
        self._storage_is_uri = storage_is_uri
        self._oom_kills = read_oom_kills(oom_counter)

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: str | None,
        files: dict[str, int] | None,
        validation: dict[str, Any] | None,
    ) -> None:
        """Raises StopTraining, on all ranks at the same report, when the attempt is to stop."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        values = self._json(metrics) if self._rank == 0 else None
        times = self._times.so_far()
        report = RankReport(sequence, self._rank, self._world_size, values, checkpoint, times, files, validation)
        answer = self._slot.report.remote(self._run, report.to_fields())
        self._update_oom_kills()
        if ray.get(answer) != CONTINUE:
            self.has_stopped = True
            raise StopTraining(STOP_MESSAGE)

    def refuse(self, error: BaseException) -> NoReturn:
        """End the training function, which has caught the error of an earlier report: no later one can be made."""
        self.error = error
        raise StopTraining(REPORT_FAILED)

    def unused_name(self, name: str) -> str:
        """The name under which the next report saves its checkpoint, where the training function has chosen `name`.

        Raises TypeError and ValueError for a name that no checkpoint can have.
        """
        name = checked_name(name, is_in_uri=self._storage_is_uri)
        unused: str = ray.get(self._slot.unused_checkpoint_name.remote(self._run, self._sequence, name))
        return unused

    def _update_oom_kills(self) -> None:
        """A kill for memory that this process has survived says nothing about its own death later."""
        kills = read_oom_kills(self._oom_counter)
        if kills != self._oom_kills:
            self._oom_kills = kills
            self._slot.oom_kills_seen.remote(self._run, self._rank, kills)

    def _json(self, metrics: dict[str, Any]) -> dict[str, Any]:
        values, dropped = json_metrics(metrics)
        for name in set(dropped) - self._warned:
            self._warned.add(name)
            types = [type(value).__name__ for key, value in metrics.items() if storable_text(str(key)) == name]
            logger.warning("metric %r is of type %s, neither one number nor text, and is left out", name, types[0])
        masked: dict[str, Any] = self._masker.mask_json(values) if self._masker else values
        return masked
