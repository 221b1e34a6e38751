"""How much is written to MLflow together: less after a failure, so that something gets through a bad connection."""

from collections.abc import Collection


class AdaptiveSize:
    """Between `least` and `most`: after a failure half of what failed, after successes in a row twice as much."""

    def __init__(self, most: int, *, least: int = 1, successes_to_grow: int = 1) -> None:
        self._most, self._least = most, least
        self._successes_to_grow = successes_to_grow
        self._successes = 0
        self.now = most

    def failed(self, count: int) -> None:
        """So many were to be written, which may be fewer than the size allows."""
        self._successes = 0
        self.now = max(self._least, min(self.now, count // 2))

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= self._successes_to_grow:
            self._successes = 0
            self.now = min(self._most, self.now * 2)


class AdaptiveSizes:
    """A size of its own per key, so that one that fails makes only its own smaller."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_key: dict[str, AdaptiveSize] = {}

    def of(self, key: str) -> AdaptiveSize:
        return self._by_key.setdefault(key, AdaptiveSize(self._most))

    def keep_only(self, keys: Collection[str]) -> None:
        """Drop the sizes of other keys: they begin with the largest again."""
        self._by_key = {key: size for key, size in self._by_key.items() if key in keys}
