"""Changes of a snapshot by which a run breaks a promise."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.snapshot import Event, Experiment, MlflowRun, Point, Snapshot, Trial
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import PlannedFault, Target
from tests.chaos.good_run import good_run

Tamper = Callable[[Snapshot], Snapshot]


def in_experiment(**changes: Callable[[Experiment], Any]) -> Tamper:
    def tamper(snapshot: Snapshot) -> Snapshot:
        (experiment,) = snapshot.experiments
        changed = {name: change(experiment) for name, change in changes.items()}
        return replace(snapshot, experiments=[replace(experiment, **changed)])

    return tamper


def in_trial(number: int, **changes: Callable[[Trial], Any]) -> Tamper:
    def tamper(experiment: Experiment) -> list[Trial]:
        trial = experiment.trials[number]
        changed = replace(trial, **{name: change(trial) for name, change in changes.items()})
        return [*experiment.trials[:number], changed, *experiment.trials[number + 1 :]]

    return in_experiment(trials=tamper)


def in_events(change: Callable[[list[Event]], list[Event]]) -> Tamper:
    """In SQL and in the API alike, so that nothing but the change itself is wrong."""
    return in_experiment(events=lambda one: change(one.events), shown_events=lambda one: change(one.events))


def in_run(number: int, change: Callable[[MlflowRun], MlflowRun]) -> Tamper:
    return in_trial(number, mirrored=lambda trial: [change(trial.mirrored[0])])


def in_lines(change: Callable[[Snapshot], list[Any]]) -> Tamper:
    return lambda snapshot: replace(snapshot, lines=change(snapshot))


def in_log(change: Callable[[Sequence[str]], Sequence[str]]) -> Tamper:
    """In that of the first trial's last attempt."""
    return in_trial(
        0, attempts=lambda one: [*one.attempts[:-1], replace(one.attempts[-1], log=tuple(change(one.attempts[-1].log)))]
    )


def in_record(**changes: Any) -> Tamper:
    return lambda snapshot: replace(snapshot, record=replace(snapshot.record, **changes))


def without_step(trial: Trial, step: int) -> list[Point]:
    return [point for point in trial.curve if point.step != step]


def with_point(points: list[tuple[int, float]], extra: tuple[int, float]) -> list[tuple[int, float]]:
    return sorted([*points, extra])


def other_curve(run: MlflowRun, name: str, change: Callable[[list[tuple[int, float]]], Any]) -> MlflowRun:
    return replace(run, curves={**run.curves, name: change(run.curves[name])})


def changed(events: list[Event], kind: str, **data: Any) -> list[Event]:
    """The last event of a kind, with other data."""
    last = max(event.seq for event in events if event.kind == kind)
    return [replace(one, data={**one.data, **data}) if one.seq == last else one for one in events]


def sized(last: Event, trial: str | None) -> Event:
    """The event of an elastic group, after the last one."""
    return replace(last, seq=last.seq + 1, kind="attempt.world_size", trial=trial, data={"step": 0, "world_size": 2})


def late(snapshot: Snapshot) -> list[Any]:
    """A line of work of the lost attempt, after the next one has begun."""
    report = next(line for line in snapshot.lines if (line.attempt, line.did) == (1, "reported"))
    return [*snapshot.lines, replace(report, at=snapshot.lines[-1].at, step=6)]


def late_by(snapshot: Snapshot, seconds: float, did: str) -> list[Any]:
    """A line of the first trial's last attempt, so long after its end."""
    attempt = snapshot.experiments[0].trials[0].attempts[-1]
    last = next(one for one in reversed(snapshot.lines) if (one.trial, one.attempt) == (0, attempt.number))
    return [*snapshot.lines, replace(last, did=did, rank=0, at=(attempt.ended_at or 0) + seconds)]


def network_fault(variant: str, agent: str) -> Fault:
    """A fault while the first attempt ran."""
    planned = PlannedFault(1, Target.NETWORK, variant, 0, 0)
    return Fault(planned, good_run().record.faults[0].at, f"network of {agent}", 17)


def twice_at_once(snapshot: Snapshot) -> list[Any]:
    """The second attempt reported a step twice."""
    again = next(line for line in snapshot.lines if (line.attempt, line.did, line.step) == (2, "reported", 7))
    return sorted([*snapshot.lines, replace(again, at=again.at + 0.001)], key=lambda line: line.at)


def said(snapshot: Snapshot, did: str, why: str) -> Line:
    """A line of a user's own program, of the first trial's last attempt."""
    last = next(line for line in snapshot.lines if (line.trial, line.attempt) == (0, 2))
    return replace(last, did=did, why=why, at=snapshot.lines[-1].at)


def left_out(snapshot: Snapshot, did: str, step: int) -> list[Any]:
    return [line for line in snapshot.lines if (line.trial, line.did, line.step) != (1, did, step)]
