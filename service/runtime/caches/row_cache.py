"""Caches what is computed from an experiment's row until that part of the row changes."""

from collections.abc import MutableMapping
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

MAX_EXPERIMENTS = 2000

Source = TypeVar("Source")
Value = TypeVar("Value")


class RowCache(Generic[Source, Value]):
    """Maps an experiment to a value and the source that the value was computed from. Thread-safe."""

    def __init__(self) -> None:
        self._entries: MutableMapping[str, tuple[Source, Value]] = LRUCache(MAX_EXPERIMENTS)
        self._lock = Lock()

    def get(self, experiment_id: str, source: Source) -> Value | None:
        """Return None if there is no value, or if it was computed from another source."""
        with self._lock:
            entry = self._entries.get(experiment_id)
        return entry[1] if entry is not None and entry[0] == source else None

    def put(self, experiment_id: str, source: Source, value: Value) -> None:
        with self._lock:
            self._entries[experiment_id] = source, value
