"""Many runs, one after the other: what each of them found."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """The faults, attempts and points of a run that was not completed are not counted."""

    seed: int
    database: str
    violations: Sequence[str]
    faults: int = 0
    attempts: int = 0
    points: int = 0
    is_completed: bool = True


def table(results: Sequence[Result]) -> str:
    return "\n".join(
        (
            _row("seed", "database", "faults", "attempts", "points", "violations"),
            *(_row(one.seed, one.database, *_counts([one])) for one in results),
            _row("all", "", *_counts(results)),
        )
    )


def _counts(results: Sequence[Result]) -> tuple[int, int, int, int]:
    return (
        sum(one.faults for one in results),
        sum(one.attempts for one in results),
        sum(one.points for one in results),
        sum(len(one.violations) for one in results),
    )


def _row(seed: object, database: str, *counts: object) -> str:
    return f"{seed!s:>8}  {database:<10}" + "".join(f"{count!s:>12}" for count in counts)
