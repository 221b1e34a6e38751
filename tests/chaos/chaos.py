"""A whole run: a stack, experiments on it, faults, and a snapshot of the results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.chaos.evidence.collect import collect
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.experiments import Planned, drift, fresh, grid, pace
from tests.chaos.faults.schedule import Target, schedule
from tests.chaos.load import Load, Series
from tests.chaos.run import Run
from tests.chaos.system.stack import Size, running


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


def chaos(plan: Plan, say: Callable[[str], None], keep: Path | None = None) -> Snapshot:
    """Raise TimeoutError when the stack does not start, or no service answers for long."""
    targets = [one for one in plan.targets if not (one is Target.DATABASE and plan.size.database == "sqlite")]
    faults = schedule(plan.seed, plan.seconds, targets, plan.gap)
    with running(plan.size, keep) as stack:
        load = Load(stack.urls, series(plan, str(stack.home.journal)))
        say(f"up: {', '.join(component.name for component in stack.components)}")
        try:
            record = Run(stack, load, faults, say).execute(plan.seconds, plan.timeout)
            return collect(stack, load.planned, record)
        finally:
            load.close()


def series(plan: Plan, journal: str) -> list[Series]:
    return [partial(_pace, plan, journal), partial(_drift, plan, journal), partial(_odd, plan, journal)]


def _pace(plan: Plan, journal: str, number: int) -> Planned:
    return pace(f"pace-{number}", journal, seed=plan.seed + number, trials=plan.trials, parallelism=plan.parallelism)


def _drift(plan: Plan, journal: str, number: int) -> Planned:
    return drift(f"drift-{number}", journal, seed=plan.seed + number, trials=plan.trials, parallelism=plan.parallelism)


def _odd(plan: Plan, journal: str, number: int) -> Planned:
    """Alternate grids and experiments with fresh processes for each trial, which take long to start."""
    if number % 2:
        return fresh(f"fresh-{number}", journal, seed=plan.seed + number, trials=3)
    return grid(f"grid-{number}", journal, seed=plan.seed + number, widths=max(2, plan.trials // 2))
