"""The schedule of faults: a pure function of a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Target(StrEnum):
    """What a fault hits.

    `RAY` is the whole Ray head with everything that runs on it; `CLIENT` is a user's own program that runs trials;
    `STORAGE` is the directory of the checkpoints, and `ARTIFACTS` that of the MLflow server's artifacts; `CLOCK` is the
    clock of a service or agent; `NETWORK` is what lies between an agent with its slots and the services; `DISK` is the
    disk of the services' data directory, with the checkpoints and a SQLite database; `DATABASE` is PostgreSQL, which
    is killed, or whose disk is full; `UP` is `paceline up`.
    """

    SERVICE = "service"
    AGENT = "agent"
    SLOT = "slot"
    WORKER = "worker"
    MLFLOW = "mlflow"
    DATABASE = "database"
    RAY = "ray"
    CLIENT = "client"
    STORAGE = "storage"
    CLOCK = "clock"
    ARTIFACTS = "artifacts"
    NETWORK = "network"
    DISK = "disk"
    UP = "up"


KILLED = "killed"
FROZEN = "frozen"
SAVING = "while saving"
AWAY = "away"
STEPPED = "stepped"
CUT = "cut"
FULL = "full"
WITH_GUARDIAN = "with its guardian"
GUARDIAN = "its guardian alone"


@dataclass(frozen=True)
class Weight:
    """How often a target is hit in a round, by which variants, and how many seconds it may be down."""

    times: int = 1
    variants: tuple[str, ...] = (KILLED,)
    outage: tuple[float, float] = (0.2, 3.0)


WEIGHTS: dict[Target, Weight] = {
    # An outage of a service is longer than training waits for an answer.
    Target.SERVICE: Weight(times=2, variants=(KILLED, KILLED, KILLED, FROZEN), outage=(0.2, 9.0)),
    Target.AGENT: Weight(variants=(KILLED, KILLED, FROZEN)),
    Target.SLOT: Weight(times=2, variants=(KILLED, KILLED, FROZEN), outage=(0, 0)),
    Target.WORKER: Weight(times=2, variants=(KILLED, SAVING), outage=(0, 0)),
    Target.MLFLOW: Weight(outage=(1.0, 6.0)),
    Target.DATABASE: Weight(variants=(KILLED, FULL), outage=(0.2, 5.0)),
    Target.RAY: Weight(outage=(0.5, 3.0)),
    Target.ARTIFACTS: Weight(variants=(AWAY,), outage=(2.0, 8.0)),
    Target.CLOCK: Weight(variants=(STEPPED,), outage=(1.0, 8.0)),
    Target.STORAGE: Weight(variants=(AWAY,), outage=(2.0, 8.0)),
    Target.NETWORK: Weight(variants=(KILLED, CUT), outage=(0.2, 6.0)),
    Target.DISK: Weight(variants=(FULL,), outage=(2.0, 8.0)),
    Target.UP: Weight(times=2, variants=(KILLED, WITH_GUARDIAN, WITH_GUARDIAN, GUARDIAN), outage=(0.2, 4.0)),
    Target.CLIENT: Weight(variants=(KILLED, KILLED, FROZEN), outage=(0.2, 3.0)),
}


@dataclass(frozen=True)
class PlannedFault:
    """Hit `target` at `at` seconds after the start; start it again `outage` seconds later.

    `pick`, in [0, 1), selects one of several processes of a kind.
    """

    at: float
    target: Target
    variant: str
    pick: float
    outage: float

    @property
    def freezes(self) -> bool:
        """Whether processes are frozen for longer than a lease. A network is cut by freezing what passes it on."""
        return self.variant in {FROZEN, CUT}

    @property
    def kind(self) -> str:
        """What it does to what."""
        return self.target if self.variant == KILLED else f"{self.target} ({self.variant})"

    def __str__(self) -> str:
        outage = f", back after {self.outage:.1f} s" if self.outage and not self.freezes else ""
        return f"{self.at:6.1f} s  {self.kind}{outage}"


MOST_PICK = 0.999
"""The largest `pick`: rounding must not make it 1."""


def schedule(
    seed: int, seconds: float, targets: Sequence[Target], gap: tuple[float, float] = (4.0, 10.0)
) -> list[PlannedFault]:
    """Return the same faults for the same arguments. Each round hits every target, in a random order."""
    drawn = random.Random(seed)  # noqa: S311 - it must be reproducible
    faults: list[PlannedFault] = []
    at = drawn.uniform(*gap)
    while at < seconds:
        for target in _round(drawn, targets):
            weight = WEIGHTS[target]
            variant, pick, outage = drawn.choice(weight.variants), drawn.random(), drawn.uniform(*weight.outage)
            faults.append(PlannedFault(round(at, 2), target, variant, min(round(pick, 3), MOST_PICK), round(outage, 2)))
            at += drawn.uniform(*gap)
    return [kill for kill in faults if kill.at < seconds]


def _round(drawn: random.Random, targets: Sequence[Target]) -> list[Target]:
    order = [target for target in targets for _ in range(WEIGHTS[target].times)]
    drawn.shuffle(order)
    return order
