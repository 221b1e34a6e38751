"""Who is killed when: a pure function of a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Victim(StrEnum):
    """A part of a running system. `RAY` is the whole Ray head with all that runs on it."""

    SERVICE = "service"
    AGENT = "agent"
    SLOT = "slot"
    WORKER = "worker"
    MLFLOW = "mlflow"
    DATABASE = "database"
    RAY = "ray"


@dataclass(frozen=True)
class Weight:
    """How often a victim comes up in a round, how it may be struck, and for how long it may be away, in seconds."""

    times: int = 1
    variants: tuple[str, ...] = ("killed",)
    outage: tuple[float, float] = (0.2, 3.0)


FROZEN = "frozen"
SAVING = "while saving"

WEIGHTS: dict[Victim, Weight] = {
    Victim.SERVICE: Weight(times=2),
    Victim.AGENT: Weight(),
    Victim.SLOT: Weight(times=2, variants=("killed", "killed", FROZEN), outage=(0, 0)),
    Victim.WORKER: Weight(times=2, variants=("killed", SAVING), outage=(0, 0)),
    Victim.MLFLOW: Weight(outage=(1.0, 6.0)),
    Victim.DATABASE: Weight(outage=(0.2, 5.0)),
    Victim.RAY: Weight(outage=(0.5, 3.0)),
}


@dataclass(frozen=True)
class Kill:
    """Strike `victim` at `at` seconds after the start; start it again `outage` seconds later.

    `pick`, in [0, 1), chooses among several of a kind.
    """

    at: float
    victim: Victim
    variant: str
    pick: float
    outage: float

    def __str__(self) -> str:
        how = "" if self.variant == "killed" else f" ({self.variant})"
        away = f", back after {self.outage:.1f} s" if self.outage else ""
        return f"{self.at:6.1f} s  {self.victim}{how}{away}"


def schedule(
    seed: int, seconds: float, victims: Sequence[Victim], gap: tuple[float, float] = (4.0, 10.0)
) -> list[Kill]:
    """The same arguments, the same kills. Each round strikes every victim, in an order of its own."""
    drawn = random.Random(seed)  # noqa: S311 - it must be foreseeable
    kills: list[Kill] = []
    at = drawn.uniform(*gap)
    while at < seconds:
        for victim in _round(drawn, victims):
            weight = WEIGHTS[victim]
            variant, pick, outage = drawn.choice(weight.variants), drawn.random(), drawn.uniform(*weight.outage)
            kills.append(Kill(round(at, 2), victim, variant, round(pick, 3), round(outage, 2)))
            at += drawn.uniform(*gap)
    return [kill for kill in kills if kill.at < seconds]


def _round(drawn: random.Random, victims: Sequence[Victim]) -> list[Victim]:
    order = [victim for victim in victims for _ in range(WEIGHTS[victim].times)]
    drawn.shuffle(order)
    return order
