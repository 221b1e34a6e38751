"""How many bytes each checkpoint of an attempt has, from what its ranks have saved."""

from collections.abc import Mapping
from dataclasses import dataclass, field

REMEMBERED = 100
"""The number of reports whose sizes are kept. A checkpoint that is saved in the background becomes known later."""


@dataclass
class _Saved:
    """What the ranks have saved with one report. Files of one name are one file: all ranks save into one directory."""

    ranks: set[int] = field(default_factory=set)
    files: dict[str, int] = field(default_factory=dict)
    is_known: bool = True


class CheckpointSizes:
    """Sizes by the sequence of the report. `add` is called in one event loop, `bytes_of` from any thread."""

    def __init__(self) -> None:
        self._saved: dict[int, _Saved] = {}

    def add(self, sequence: int, rank: int, files: Mapping[str, int] | None) -> None:
        """One rank's files, by name; None if their sizes are not known."""
        saved = self._saved.setdefault(sequence, _Saved())
        saved.is_known = saved.is_known and files is not None
        saved.files |= files or {}
        saved.ranks.add(rank)
        self._saved.pop(sequence - REMEMBERED, None)

    def bytes_of(self, sequence: int, world_size: int) -> int | None:
        """None if the size is not known, or not all ranks have reported yet."""
        saved = self._saved.get(sequence)
        if saved is None or not saved.is_known or len(saved.ranks) < world_size:
            return None
        return sum(saved.files.values())
