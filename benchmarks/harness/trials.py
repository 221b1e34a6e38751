"""The timestamps of the training functions, read back: when each trial began, reported and ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

Timestamp = dict[str, Any]
"""`event` is `first`, `report`, `answer` or `last`; `at` is the machine's monotonic time."""


@dataclass(frozen=True)
class Trial:
    """One run of a training function: the lines of functions/timestamps.py by rank."""

    ranks: list[list[Timestamp]]

    @property
    def first(self) -> float:
        """When the first rank began."""
        return min(float(rank[0]["at"]) for rank in self.ranks)

    @property
    def last(self) -> float | None:
        """When the last rank returned; None when a rank was killed."""
        ends = [rank[-1] for rank in self.ranks]
        return max(end["at"] for end in ends) if all(end["event"] == "last" for end in ends) else None

    @property
    def reports(self) -> list[Timestamp]:
        """The reports of rank 0, with their metrics."""
        return [one for one in self.ranks[0] if one["event"] == "report"]

    @property
    def waits(self) -> list[float]:
        """The seconds that each report of rank 0 took to return."""
        return [after["at"] - one["at"] for one, after in pairwise(self.ranks[0]) if after["event"] == "answer"]


@dataclass(frozen=True)
class Run:
    """One experiment. `began` is its submission; `trials` are sorted by their first lines."""

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
    trials: dict[str, list[list[Timestamp]]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        name, _rank, _suffix = file.name.rsplit(".", 2)
        trials.setdefault(name, []).append(list(_lines(file)))
    return sorted(map(Trial, trials.values()), key=lambda trial: trial.first)


def _lines(file: Path) -> Iterator[Timestamp]:
    """Skip an incomplete last line of a killed process."""
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
