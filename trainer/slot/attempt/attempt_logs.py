"""The output of an attempt's ranks, on its way to the service."""

from trainer.client.log_outbox import LogOutbox
from trainer.slot.attempt.loop_signal import LoopSignal
from trainer.slot.attempt.ranks import Ranks
from trainer.worker.logs.masker import Masker


class AttemptLogs:
    """`masker` knows the workers' secrets, which they mask themselves in what they send."""

    def __init__(self, ranks: Ranks, outbox: LogOutbox, masker: Masker, changes: LoopSignal) -> None:
        self._ranks, self._outbox, self._masker, self._changes = ranks, outbox, masker, changes

    def add(self, rank: int, offset: int, text: str, positions: dict[str, int]) -> None:
        """Output that the rank has sent, as in `Ranks.add_log`."""
        self._ranks.add_log(rank, offset, text, positions, self._outbox.put)

    async def room(self) -> None:
        """Wait until the ranks may send more output."""
        await self._changes.wait_until(lambda: self._outbox.has_room)

    def end_of(self, rank: int) -> int:
        """The offset from which a new process goes on with the rank's output."""
        return self._ranks.end_of_log(rank, self._outbox.put)

    def add_note(self, rank: int, message: str) -> None:
        """Add a line of Paceline's own to the rank's output."""
        self.add(rank, self.end_of(rank), f"[paceline: {self._masker.mask(message)}]\n", {})

    def add_rest(self, rank: int, offset: int, text: str) -> None:
        """What was read of the output of a dead process, with secrets."""
        self._outbox.put(rank, offset, self._masker.mask(text))
