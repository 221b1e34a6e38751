"""Many runs, one after the other: what each of them found, and what all of them did."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.coverage import unchecked
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.recovery_times import recovery_lines, recovery_times
from tests.chaos.report import fault_counts, fault_lines


@dataclass(frozen=True)
class Result:
    """`faults` and `recoveries` are by kind. Of a run that was not completed there is nothing but the violation."""

    seed: int
    database: str
    violations: Sequence[str]
    faults: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 0
    points: int = 0
    recoveries: Mapping[str, Sequence[float]] = field(default_factory=dict)
    unchecked: Sequence[str] = ()
    is_completed: bool = True

    @property
    def fault_count(self) -> int:
        return sum(self.faults.values())


def result_of(seed: int, database: str, snapshot: Snapshot, violations: Sequence[str]) -> Result:
    trials = [trial for experiment in snapshot.experiments for trial in experiment.trials]
    return Result(
        seed,
        database,
        violations,
        dict(fault_counts(snapshot)),
        sum(len(one.attempts) for one in trials),
        sum(len(one.curve) for one in trials),
        recovery_times(snapshot),
        list(unchecked(snapshot)),
    )


def add_result(file: Path, result: Result) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(result)) + "\n")


def read_results(file: Path) -> list[Result]:
    """Return the results of earlier parts of the campaign; none when it has just begun."""
    return [Result(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def summary(results: Sequence[Result]) -> str:
    sections = (_runs(results), _faults(results), _recoveries(results), _unchecked(results))
    return "\n\n".join("\n".join(section) for section in sections)


def _runs(results: Sequence[Result]) -> Iterator[str]:
    yield _row("seed", "database", "faults", "attempts", "points", "violations")
    yield from (_row(one.seed, one.database, *_counts([one])) for one in results)
    yield _row("all", "", *_counts(results))


def _counts(results: Sequence[Result]) -> tuple[int, int, int, int]:
    return (
        sum(one.fault_count for one in results),
        sum(one.attempts for one in results),
        sum(one.points for one in results),
        sum(len(one.violations) for one in results),
    )


def _row(seed: object, database: str, *counts: object) -> str:
    return f"{seed!s:>8}  {database:<10}" + "".join(f"{count!s:>12}" for count in counts)


def _faults(results: Sequence[Result]) -> Iterator[str]:
    found = Counter[str]()
    for result in results:
        found.update(result.faults)
    return fault_lines(found)


def _recoveries(results: Sequence[Result]) -> Iterator[str]:
    found = defaultdict[str, list[float]](list)
    for result in results:
        for kind, seconds in result.recoveries.items():
            found[kind] += seconds
    return recovery_lines(found)


def _unchecked(results: Sequence[Result]) -> Iterator[str]:
    """Each thing once, with the number of runs that say so; the numbers in it are those of all runs."""
    found = defaultdict[str, list[list[int]]](list)
    for line in (line for result in results for line in result.unchecked):
        found[re.sub(r"\d+", "{}", line)].append([int(one) for one in re.findall(r"\d+", line)])
    yield "Not checked"
    for line, numbers in sorted(found.items()):
        yield f"  {len(numbers):>3} runs: {line.format(*map(sum, zip(*numbers, strict=True)))}"
