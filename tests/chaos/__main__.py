"""`make chaos`: injects faults for a while, audits the run, and reports. Exits with 1 after a violation."""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.chaos.audit import audit
from tests.chaos.chaos import Kind, Plan, chaos
from tests.chaos.faults.schedule import Target
from tests.chaos.report import report
from tests.chaos.system.stack import Size

DATABASES = ("postgresql", "sqlite")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    broken = 0
    for database in [asked.database] if asked.database else DATABASES:
        size = Size(database=database, services=asked.services, agents=asked.agents, lease_seconds=asked.lease)
        targets = [Target(name) for name in asked.kill]
        plan = Plan(seed, asked.seconds, size, targets, trials=asked.trials, parallelism=asked.parallelism)
        plan = replace(plan, load=[Kind(name) for name in asked.load])
        _say(f"\n{database}, seed {seed}: {asked.seconds:g} s of faults in {', '.join(asked.kill)}\n")
        snapshot = chaos(plan, _say, asked.keep and asked.keep / database)
        violations = audit(snapshot)
        _say(f"\n{report(snapshot, violations)}")
        broken += len(violations)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, help="the same seed gives the same schedule; default: a random one, which is printed")
    add("--seconds", type=float, default=200, help="for how long faults are injected (default: %(default)s)")
    add("--database", choices=DATABASES, help="default: one after the other")
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
    add("--keep", type=Path, help="an empty directory with a short path, in which logs, database and journals stay")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
