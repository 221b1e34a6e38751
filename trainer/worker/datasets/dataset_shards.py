"""The datasets that a rank has asked for, and how long its training function waited for their batches."""

from typing import Any, NamedTuple

from trainer.ray_train.batch_wait import WaitTimer, timing_waits
from trainer.ray_train.dataset_server_callback import blocked_seconds
from trainer.worker.datasets.datasets import Answer, shard_of


class BatchWait(NamedTuple):
    """A wait for the next batch of a dataset, since then, by `time.monotonic()`. `dataset`: None for the only one."""

    dataset: str | None
    since: float


class DatasetShards:
    """Keeps the iterators that the training function got: each knows how long its reader waited."""

    def __init__(self) -> None:
        self._iterators: list[Any] = []
        self._timers: list[tuple[str | None, WaitTimer]] = []

    def shard_of(self, name: str | None, answer: Answer | None) -> Any:
        """The iterator in a dataset server's answer. Raises DatasetNotMade."""
        iterator = shard_of(name, answer)
        self._iterators.append(iterator)
        self._timers.append((name, timing_waits(iterator)))
        return iterator

    def blocked_seconds(self) -> float:
        return sum(map(blocked_seconds, self._iterators))

    def batch_wait(self) -> BatchWait | None:
        """The longest of the present waits for a batch; None without any. From any thread."""
        waits = [BatchWait(name, since) for name, timer in self._timers if (since := timer.since) is not None]
        return min(waits, key=lambda wait: wait.since, default=None)
