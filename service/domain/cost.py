"""What attempts cost: seconds by phase, and the seconds for which they held workers and GPUs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from trainer.wire import PhaseSeconds

DIGITS = 3


@dataclass(frozen=True)
class Cost:
    """Seconds per phase of one attempt, or summed over several; None: not known.

    All phases except waiting add up to the time from the claim to the end.
    """

    waiting_seconds: float | None = None
    starting_seconds: float | None = None
    data_seconds: float | None = None
    training_seconds: float | None = None
    checkpointing_seconds: float | None = None
    reporting_seconds: float | None = None
    idle_seconds: float | None = None
    unknown_seconds: float = 0.0
    worker_seconds: float = 0.0
    gpu_seconds: float = 0.0

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Self:
        """Without what this version does not know."""
        names = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in (stored or {}).items() if name in names})

    def to_json(self) -> dict[str, float]:
        """Without what is not known."""
        return {name: round(value, DIGITS) for name, value in vars(self).items() if value is not None}

    def __add__(self, other: "Cost") -> "Cost":
        sums = {name: _sum(value, getattr(other, name)) for name, value in vars(self).items()}
        return Cost.from_json(sums)


@dataclass(frozen=True)
class AttemptTimes:
    """The seconds of an attempt, as far as they are known; `phases` is what its holder has told last.

    `waiting`: before its claim; `elapsed`: since then; `starting`: until the first line of its training function.
    `holding`: for how long it has held its resources.
    """

    waiting: float | None
    elapsed: float
    holding: float
    starting: float | None
    phases: PhaseSeconds | None

    @property
    def known_start(self) -> float | None:
        """A holder that tells phases, but no first line, has been starting for the whole time."""
        if self.starting is None and self.phases is not None:
            return max(0.0, self.elapsed - self.phases.total)
        return None if self.starting is None else min(max(0.0, self.starting), self.elapsed)

    @property
    def unknown(self) -> float:
        """The seconds of which its holder has told nothing."""
        told = self.phases.total if self.phases is not None else 0.0
        return max(0.0, self.elapsed - (self.known_start or 0.0) - told)

    def cost(self, workers: int, gpus_per_worker: float) -> Cost:
        told = self.phases.model_dump() if self.phases is not None else {}
        return Cost(
            waiting_seconds=self.waiting,
            starting_seconds=self.known_start,
            **{f"{phase}_seconds": seconds for phase, seconds in told.items()},
            unknown_seconds=self.unknown,
            worker_seconds=self.holding * workers,
            gpu_seconds=self.holding * workers * gpus_per_worker,
        )


def _sum(first: float | None, second: float | None) -> float | None:
    return second if first is None else first + (second or 0.0)
