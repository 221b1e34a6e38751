"""What an attempt gets to know from the answers of the service."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.client.attempt_messages import Progress


@dataclass(frozen=True)
class ReportAnswered:
    """The service's answer to one report, and the URI of the checkpoint that was sent with it.

    `deciding_sequence`: the report at which the attempt had to leave. It may have trained on while the service was
    away. `kept`: as in `trainer.wire.Answer`.
    """

    sequence: int
    decision: str
    reason: str | None
    deciding_sequence: int | None = None
    checkpoint: str | None = None
    kept: Sequence[str] = ()

    @property
    def counts(self) -> bool:
        """Whether the service uses the report and its checkpoint: it was not made after the decision to stop."""
        return self.deciding_sequence is None or self.sequence <= self.deciding_sequence


class ServiceListener(Protocol):
    """What the service's answers cause. The methods are called from the threads of heartbeat and outboxes."""

    def on_report_answered(self, answered: ReportAnswered) -> None:
        """The service has answered a report."""

    def on_order(self, decision: str, reason: str | None) -> None:
        """The service wants the attempt to end: `stop` or `kill`."""

    def on_progress_known(self, progress: Progress) -> None:
        """The service has taken what a heartbeat tells."""

    def on_lease_lost(self) -> None:
        """The service has given the trial to another holder, or has deleted it."""

    def on_log_room(self) -> None:
        """There is room for more output in the queue of logs, or its output is no longer delivered."""

    def on_report_lost(self, error: Exception) -> None:
        """A report cannot be delivered."""
