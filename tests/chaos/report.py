"""The report at the end of a run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.chaos.coverage import covered, unchecked
from tests.chaos.evidence.snapshot import Snapshot, Trial
from tests.chaos.recovery_times import recovery_lines, recovery_times


def report(snapshot: Snapshot, violations: Sequence[str]) -> str:
    sections = (
        _size(snapshot),
        _titled("Covered", covered(snapshot)),
        _faults(snapshot),
        _work(snapshot),
        recovery_lines(recovery_times(snapshot)),
        _titled("Not checked in this run", unchecked(snapshot)),
        _verdict(violations),
    )
    return "\n\n".join("\n".join(section) for section in sections)


def _titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield title
    yield from (f"  {line}" for line in lines)


def _trials(snapshot: Snapshot) -> list[Trial]:
    return [trial for experiment in snapshot.experiments for trial in experiment.trials]


def _size(snapshot: Snapshot) -> Iterator[str]:
    trials = _trials(snapshot)
    ends = Counter(trial.status for trial in trials)
    events = sum(len(experiment.events) for experiment in snapshot.experiments)
    yield f"{len(snapshot.experiments)} experiments, {len(trials)} trials: {_counted(ends)}."
    yield f"{sum(len(trial.curve) for trial in trials)} points of curves, {events} events, all of them compared."


def fault_counts(snapshot: Snapshot) -> Counter[str]:
    return Counter(one.planned.kind for one in snapshot.record.faults)


def fault_lines(counts: Mapping[str, int]) -> Iterator[str]:
    yield "Faults"
    yield from (f"  {kind:<30} {count:>4}" for kind, count in sorted(counts.items()))


def _faults(snapshot: Snapshot) -> Iterator[str]:
    yield from fault_lines(fault_counts(snapshot))
    deaths = Counter(death.name for death in snapshot.record.deaths)
    yield from (f"  {f'{name} ended by itself':<30} {count:>4}" for name, count in sorted(deaths.items()))
    if snapshot.record.missed:
        yield f"  no such target was running {len(snapshot.record.missed)} times"


def _work(snapshot: Snapshot) -> Iterator[str]:
    trials = _trials(snapshot)
    attempts = [attempt for trial in trials for attempt in trial.attempts]
    taken = Counter(attempt.kind for attempt in attempts if attempt.kind)
    yield "Effects on the trials"
    yield f"  attempts                         {len(attempts):>6}  of them {_counted(taken) or 'none failed'}"
    yield f"  attempts resumed from checkpoint {sum(one.resume_step is not None for one in attempts):>6}"
    reports = [line for line in snapshot.lines if line.did == "report" and line.rank == 0]
    made = Counter((line.experiment_id, line.trial, line.step) for line in reports)
    stored = sum(len(trial.curve) for trial in trials)
    yield f"  reports that functions made      {len(reports):>6}"
    yield f"  steps made more than once        {sum(count - 1 for count in made.values()):>6}  each counted once"
    yield f"  steps made beyond a trial's end  {len(made) - stored:>6}  after the trial was stopped; not counted"
    yield f"  points stored                    {stored:>6}"
    aside = sum(len(trial.uncounted) for trial in trials)
    yield f"  reports that were set aside      {aside:>6}  made after the trial was stopped, while the service was away"


def _verdict(violations: Sequence[str]) -> Iterator[str]:
    if not violations:
        yield "Nothing was lost, and nothing was counted twice."
        return
    yield f"{len(violations)} VIOLATIONS"
    yield from (f"  {violation}" for violation in violations)


def _counted(counts: Counter[str] | Counter[str | None]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda one: -one[1]))
