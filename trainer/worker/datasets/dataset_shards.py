"""The datasets that a rank has asked for, and how long its training function waited for their batches."""

from typing import Any

from trainer.ray_train.dataset_server_callback import blocked_seconds
from trainer.worker.datasets.datasets import Answer, shard_of


class DatasetShards:
    """Keeps the iterators that the training function got: each knows how long its reader waited."""

    def __init__(self) -> None:
        self._iterators: list[Any] = []

    def shard_of(self, name: str | None, answer: Answer | None) -> Any:
        """The iterator in a dataset server's answer. Raises DatasetNotMade."""
        iterator = shard_of(name, answer)
        self._iterators.append(iterator)
        return iterator

    def blocked_seconds(self) -> float:
        return sum(map(blocked_seconds, self._iterators))
