"""The datasets that a rank has asked for, and how long its training function waited for their batches."""

from typing import Any, NamedTuple

from trainer.ray_train.datasets.batch_wait import WaitTimer, timing_waits
from trainer.ray_train.datasets.dataset_server_callback import blocked_seconds
from trainer.worker.datasets.dataset_making import Answer, shard_of

SPLIT = "the other ranks do not loop over it, as all ranks must if it is split"
NO_NODE = "no node can run its tasks, by the resources or labels they need"
MADE = "the function that makes the datasets, or a reader of files, is still at work"


class DataWait(NamedTuple):
    """A wait for `what`, for a sentence, since then, by `time.monotonic()`. `why`: the usual reasons."""

    what: str
    since: float
    why: str

    @classmethod
    def for_batch(cls, dataset: str | None, since: float, world_size: int) -> "DataWait":
        """For the next one of this dataset; None: of the only one."""
        name = f" {dataset!r}" if dataset else ""
        why = f"{SPLIT}, or {NO_NODE}" if world_size > 1 else NO_NODE
        return cls(f"the next batch of the dataset{name}", since, why)

    @classmethod
    def for_shard(cls, since: float) -> "DataWait":
        """For the answer of the dataset server."""
        return cls("ray.train.get_dataset_shard()", since, f"{MADE}, or {NO_NODE}")


class DatasetShards:
    """Keeps the iterators that the training function got: each knows how long its reader waited."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
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

    def batch_wait(self) -> DataWait | None:
        """The longest of the present waits for a batch; None without any. From any thread."""
        begun = [(name, since) for name, timer in self._timers if (since := timer.since) is not None]
        waits = [DataWait.for_batch(name, since, self._world_size) for name, since in begun]
        return min(waits, key=lambda wait: wait.since, default=None)
