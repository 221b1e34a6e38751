"""What an attempt gets to know from the answers of the service."""

from collections.abc import Sequence
from typing import Any, Protocol


class ServiceListener(Protocol):
    """What the service's answers cause. The methods are called from the threads of heartbeat and outboxes."""

    def on_decision(self, sequence: int, decision: str, reason: str | None) -> None:
        """The service has answered this report."""

    def on_order(self, decision: str, reason: str | None) -> None:
        """The service wants the attempt to end: `stop` or `kill`."""

    def on_progress_known(self, progress: dict[str, Any]) -> None:
        """The service has taken what a heartbeat tells."""

    def on_lease_lost(self) -> None:
        """The service has given the trial to another holder."""

    def on_report_lost(self, error: Exception) -> None:
        """A report cannot be delivered."""

    def on_checkpoint_known(self, uri: str, kept: Sequence[str]) -> None:
        """The service has stored this checkpoint. Those in `kept` stay, however old they are."""

    def on_checkpoint_uncounted(self, uri: str) -> None:
        """The service will not use this checkpoint: it was saved after the decision to stop."""

    def on_decided(self, sequence: int) -> None:
        """The attempt had to leave at this report. It may have trained on while the service was away."""
