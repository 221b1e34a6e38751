"""`make chaos`: injects faults for a while, audits the run, and reports. Exits with 1 after a violation."""

import argparse
import pickle
import random
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from tests.chaos.audit import audit
from tests.chaos.campaign import Result, add_result, read_results, result_of, summary
from tests.chaos.chaos import Kind, Plan, chaos
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.faults.schedule import Target
from tests.chaos.report import report
from tests.chaos.system.stack import Size

DATABASES = ("postgresql", "sqlite")
UP = "up"
"""In the place of the database: `paceline up`, which has a SQLite database."""
KEEP = """a directory with a short path: logs, database, journals and the snapshot of each run stay there, and with
--faults only those of runs with violations"""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    results: list[Result] = []
    try:
        for seed, database in _runs(asked):
            results.append(_run(asked, seed, database))
            if asked.results:
                add_result(asked.results, results[-1])
            if not _wants_more(asked, results):
                break
    finally:  # also after Ctrl-C
        if asked.faults:
            _say(f"\n{summary(read_results(asked.results) if asked.results else results)}")
    return 1 if any(one.violations for one in results) else 0


def _runs(asked: argparse.Namespace) -> Iterator[tuple[int, str]]:
    first = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    for seed in count(first) if asked.faults else [first]:
        for database in _databases(asked):
            yield seed, database


def _databases(asked: argparse.Namespace) -> Sequence[str]:
    if asked.up:
        return [UP]
    return [asked.database] if asked.database else DATABASES


def _wants_more(asked: argparse.Namespace, results: Sequence[Result]) -> bool:
    """A run that was not completed is the last: the next one would hardly be completed."""
    if not asked.faults:
        return True
    return results[-1].is_completed and sum(one.fault_count for one in results) < asked.faults


def _run(asked: argparse.Namespace, seed: int, database: str) -> Result:
    _say(f"\n{database}, seed {seed}: {asked.seconds:g} s of faults in {', '.join(asked.kill)}\n")
    keep = asked.keep and asked.keep / f"{database}-{seed}"
    try:
        snapshot = chaos(_plan(asked, seed, database), _say, keep)
    except TimeoutError as error:
        _say(f"\nThe run was not completed: {error}")
        return Result(seed, database, [f"not completed: {error}"], is_completed=False)
    violations = audit(snapshot)
    _say(f"\n{report(snapshot, violations)}")
    if keep and not violations and asked.faults:
        shutil.rmtree(keep)
    elif keep:
        (keep / "snapshot.pickle").write_bytes(pickle.dumps(_without_processes(snapshot)))
    return result_of(seed, database, snapshot, violations)


def _without_processes(snapshot: Snapshot) -> Snapshot:
    """It can be stored, and audited again."""
    faults = [replace(fault, component=None) for fault in snapshot.record.faults]
    return replace(snapshot, record=replace(snapshot.record, faults=faults))


def _plan(asked: argparse.Namespace, seed: int, database: str) -> Plan:
    kind = "sqlite" if database == UP else database
    size = Size(kind, services=asked.services, agents=asked.agents, lease_seconds=asked.lease, up=database == UP)
    targets, load = [Target(name) for name in asked.kill], [Kind(name) for name in asked.load]
    return Plan(
        seed,
        asked.seconds,
        size,
        targets,
        gap=tuple(asked.gap),
        trials=asked.trials,
        parallelism=asked.parallelism,
        load=load,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, help="the same seed gives the same schedule; default: a random one, which is printed")
    add("--seconds", type=float, default=200, help="for how long faults are injected (default: %(default)s)")
    add("--gap", type=float, nargs=2, default=(4, 10), help="seconds between two faults (default: %(default)s)")
    add("--faults", type=int, help="run with this seed and the following ones until there have been so many faults")
    add("--database", choices=DATABASES, help="default: one after the other")
    add("--up", action="store_true", help="kill one `paceline up`, its guardian and its parts, on SQLite")
    add("--services", type=int, default=2, help="service processes on PostgreSQL (default: %(default)s)")
    add("--agents", type=int, default=2, help="default: %(default)s")
    add("--lease", type=float, default=20, help="PACELINE_LEASE_SECONDS (default: %(default)s)")
    add("--trials", type=int, default=8, help="trials of an experiment (default: %(default)s)")
    add("--parallelism", type=int, default=2, help="trials at once (default: %(default)s)")
    names = [target.value for target in Target]
    add(
        "--kill",
        nargs="+",
        choices=names,
        default=names,
        metavar="TARGET",
        help=f"any of {', '.join(names)}; default: all",
    )
    kinds = [kind.value for kind in Kind]
    add(
        "--load",
        nargs="+",
        choices=kinds,
        default=kinds,
        metavar="KIND",
        help=f"any of {', '.join(kinds)}; default: all",
    )
    add("--keep", type=Path, help=KEEP)
    add("--results", type=Path, help="a file to which each run's result is added; the table at the end has all of it")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: leave nothing running
    sys.exit(main())
