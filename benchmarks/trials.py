"""What the training functions wrote down, read back: when each trial began, reported and ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

Mark = dict[str, Any]
"""`mark` is `first`, `report`, `answer` or `last`; `at` is the machine's monotonic time."""


@dataclass(frozen=True)
class Trial:
    """One run of a training function: by rank, the lines that functions/marks.py wrote."""

    ranks: list[list[Mark]]

    @property
    def first(self) -> float:
        """When the first rank began."""
        return min(float(rank[0]["at"]) for rank in self.ranks)

    @property
    def last(self) -> float | None:
        """When the last rank left; None when one was ended from outside."""
        ends = [rank[-1] for rank in self.ranks]
        return max(end["at"] for end in ends) if all(end["mark"] == "last" for end in ends) else None

    @property
    def reports(self) -> list[Mark]:
        """Rank 0's, with their metrics."""
        return [mark for mark in self.ranks[0] if mark["mark"] == "report"]

    @property
    def waits(self) -> list[float]:
        """The seconds that each of rank 0's reports took to return, of those that did."""
        return [after["at"] - mark["at"] for mark, after in pairwise(self.ranks[0]) if after["mark"] == "answer"]


@dataclass(frozen=True)
class Run:
    """One experiment. `began` is its submission; `trials` are in the order of their first lines."""

    began: float
    ended: float
    trials: list[Trial] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def gaps(self) -> list[float]:
        """Seconds from the last line of one trial's function to the first line of the next trial's."""
        pairs = pairwise(self.trials)
        return [after.first - trial.last for trial, after in pairs if trial.last is not None]


def read(folder: Path) -> list[Trial]:
    trials: dict[str, list[list[Mark]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        name, _rank, _suffix = file.name.rsplit(".", 2)
        trials.setdefault(name, []).append(list(_lines(file)))
    return sorted(map(Trial, trials.values()), key=lambda trial: trial.first)


def _lines(file: Path) -> Iterator[Mark]:
    """A process that was killed may have left half a line at the end."""
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
