"""A whole run: a stack, experiments on it, faults, and a snapshot of the results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from tests.chaos.evidence.collect import collect
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.experiments import Planned, climb, command, drift, external, fresh, grid, pace, population
from tests.chaos.faults.schedule import Target, schedule
from tests.chaos.load import Load, Series
from tests.chaos.run import Run
from tests.chaos.system.running import running
from tests.chaos.system.stack import Size
from tests.chaos.system.stand_ins import can_mount
from tests.chaos.user import User


class Kind(StrEnum):
    """The kinds of experiments that run beside each other. A user steers the one that is `STEERED`."""

    PACE = "pace"
    DRIFT = "drift"
    ODD = "odd"
    CLIMB = "climb"
    POPULATION = "population"
    COMMAND = "command"
    EXTERNAL = "external"
    STEERED = "steered"


@dataclass(frozen=True)
class Plan:
    """`trials` and `parallelism` are the larger experiments' limits. A SQLite database is no target of its own."""

    seed: int
    seconds: float
    size: Size
    targets: Sequence[Target]
    gap: tuple[float, float] = (4.0, 10.0)
    trials: int = 8
    parallelism: int = 2
    timeout: float = 420
    load: Sequence[Kind] = tuple(Kind)


def chaos(plan: Plan, say: Callable[[str], None], keep: Path | None = None) -> Snapshot:
    """Raise TimeoutError when the stack does not start, or no service answers for long."""
    absent = set(_absent(plan, say))
    faults = schedule(plan.seed, plan.seconds, [one for one in plan.targets if one not in absent], plan.gap)
    with running(replace(plan.size, clients=int(Kind.EXTERNAL in plan.load)), keep) as stack:
        journal = str(stack.home.journal)
        user = User(stack.urls, journal, plan.seed) if Kind.STEERED in plan.load else None
        load = Load(stack.urls, series(plan, journal), user)
        say(f"up: {', '.join(component.name for component in stack.components)}")
        try:
            record = Run(stack, load, faults, say).execute(plan.seconds, plan.timeout)
            return collect(stack, load.planned, record, load.calls)
        finally:
            load.close()


def _absent(plan: Plan, say: Callable[[str], None]) -> Iterator[Target]:
    """The targets that this system does not have."""
    if plan.size.up:
        yield from (Target.DATABASE, Target.NETWORK, Target.CLOCK)
    else:
        yield Target.UP
    if plan.size.database == "sqlite":
        yield Target.DATABASE
    if Kind.EXTERNAL not in plan.load:
        yield Target.CLIENT
    if Target.DISK in plan.targets and not can_mount():
        say("no disk will be full: this user must not mount one")
        yield Target.DISK


def series(plan: Plan, journal: str) -> list[Series]:
    return [partial(MAKERS[kind], plan, journal) for kind in plan.load if kind in MAKERS]


def _pace(plan: Plan, journal: str, number: int) -> Planned:
    return pace(f"pace-{number}", journal, seed=plan.seed + number, trials=plan.trials, parallelism=plan.parallelism)


def _drift(plan: Plan, journal: str, number: int) -> Planned:
    return drift(f"drift-{number}", journal, seed=plan.seed + number, trials=plan.trials, parallelism=plan.parallelism)


def _odd(plan: Plan, journal: str, number: int) -> Planned:
    """Alternate grids and experiments with fresh processes for each trial, which take long to start."""
    if number % 2:
        return fresh(f"fresh-{number}", journal, seed=plan.seed + number, trials=3)
    return grid(f"grid-{number}", journal, seed=plan.seed + number, widths=max(2, plan.trials // 2))


def _climb(plan: Plan, journal: str, number: int) -> Planned:
    return climb(f"climb-{number}", journal, seed=plan.seed + number, trials=plan.trials, parallelism=plan.parallelism)


def _population(plan: Plan, journal: str, number: int) -> Planned:
    members = max(4, plan.trials // 2)
    return population(
        f"population-{number}", journal, seed=plan.seed + number, trials=members, parallelism=plan.parallelism
    )


def _command(plan: Plan, journal: str, number: int) -> Planned:
    trials = max(4, plan.trials // 2)
    return command(f"command-{number}", journal, seed=plan.seed + number, trials=trials, parallelism=plan.parallelism)


def _external(plan: Plan, journal: str, number: int) -> Planned:
    return external(
        f"external-{number}", journal, seed=plan.seed + number, trials=plan.trials, parallelism=plan.parallelism
    )


MAKERS: Mapping[Kind, Callable[[Plan, str, int], Planned]] = {
    Kind.PACE: _pace,
    Kind.DRIFT: _drift,
    Kind.ODD: _odd,
    Kind.CLIMB: _climb,
    Kind.POPULATION: _population,
    Kind.COMMAND: _command,
    Kind.EXTERNAL: _external,
}
