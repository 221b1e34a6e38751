"""Recovery times: from a fault until there is evidence that the target, or what depends on it, works again."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from service.stack.http_checks import AGENT_NAME
from tests.chaos.evidence.monitor import MLFLOW, Sample
from tests.chaos.evidence.snapshot import Attempt, Snapshot
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import GUARDIAN, PlannedFault, Target

RECENT_SECONDS = 10.0


@dataclass(frozen=True)
class Recovery:
    """`seconds` count from the restart of the component, or from the fault where nothing is restarted, or is frozen."""

    fault: PlannedFault
    until: str
    seconds: float


def recovery_times(snapshot: Snapshot) -> dict[str, list[float]]:
    """Return the seconds by the kind of fault and the evidence."""
    found = defaultdict[str, list[float]](list)
    for one in recoveries(snapshot):
        found[f"{one.fault.kind}: until {one.until}"].append(one.seconds)
    return dict(found)


def recovery_lines(times: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield f"{'Recovery, in seconds':<56} times  median  longest"
    for what, seconds in sorted(times.items()):
        yield f"  {what:<54} {len(seconds):>5} {statistics.median(seconds):>7.2f} {max(seconds):>8.2f}"


def recoveries(snapshot: Snapshot) -> Iterator[Recovery]:
    """Faults without evidence, because the experiments had ended by then, are left out."""
    for number, fault in enumerate(snapshot.record.faults):
        since = snapshot.record.restarted.get(number, fault.at) if not fault.frozen else fault.at
        back = snapshot.record.restarted.get(number, fault.at)
        for until, at in _evidence(snapshot, fault, since, back).items():
            if at is not None:
                yield Recovery(fault.planned, until, at - since)


def _evidence(snapshot: Snapshot, fault: Fault, since: float, back: float) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    match fault.planned.target:
        case Target.SERVICE:
            ready = (one.at for one in _samples(snapshot, fault.name) if one.ready and one.at > since)
            agents = {agent for agent, service in snapshot.record.service_of.items() if service == fault.name}
            found = {"it is ready": min(ready, default=None)}
            if agents:
                found["a report is stored"] = _stored(snapshot, since, agents)
        case Target.UP if fault.planned.variant != GUARDIAN:
            found = {"a report is stored": _stored(snapshot, since, {AGENT_NAME})}
        case Target.AGENT:
            heard = (one.at for one in snapshot.record.samples if one.seen.get(fault.name, 0) > since)
            found = {"it asks for work": min(heard, default=None)}
        case Target.MLFLOW:
            found = {"it has caught up": _caught_up(snapshot, fault.at, since)}
        case Target.DATABASE:
            found = {"a report is stored": _stored(snapshot, since, None)}
        case Target.NETWORK:
            agent = fault.name.removeprefix("network of ")
            found = {"its agent's report is stored": _stored(snapshot, back, {agent})}
        case Target.STORAGE | Target.DISK:
            found = {"a checkpoint is stored": _saved(snapshot, since)}
        case Target.SLOT | Target.WORKER | Target.CLIENT | Target.RAY:
            found = {"the next attempt begins": _retried(snapshot, fault)}
    return found


def _samples(snapshot: Snapshot, service: str) -> list[Sample]:
    return [sample for sample in snapshot.record.samples if sample.service == service]


def _stored(snapshot: Snapshot, since: float, agents: set[str] | None) -> float | None:
    """Return when the first report after `since` was stored, of attempts of these agents."""
    moments = []
    for trial in (trial for experiment in snapshot.experiments for trial in experiment.trials):
        of = {attempt.number for attempt in trial.attempts if agents is None or attempt.holder in agents}
        moments += [point.at for point in trial.curve if point.attempt in of and point.at > since]
    return min(moments, default=None)


def _saved(snapshot: Snapshot, since: float) -> float | None:
    events = (event for experiment in snapshot.experiments for event in experiment.events)
    return min((event.at for event in events if event.kind == "checkpoint" and event.at > since), default=None)


def _caught_up(snapshot: Snapshot, struck_at: float, since: float) -> float | None:
    """Return when MLflow answered again and the mirror lagged no more than shortly before the fault."""
    answers = min((one.at for one in _samples(snapshot, MLFLOW) if one.ready and one.at > since), default=None)
    if answers is None:
        return None
    known = [sample for sample in snapshot.record.samples if sample.lag is not None]
    usual = max((one.lag or 0 for one in known if struck_at - RECENT_SECONDS < one.at < struck_at), default=0)
    return min((one.at for one in known if one.at > answers and (one.lag or 0) <= usual), default=None)


def _retried(snapshot: Snapshot, fault: Fault) -> float | None:
    """Return when the trial that lost its attempt began the next one."""
    moments = []
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            for attempt, following in pairwise(trial.attempts):
                key = (experiment.id, trial.number, attempt.number)
                if fault.attempt == key or (fault.attempt is None and _ran_at(attempt, fault.at)):
                    moments.append(following.started_at)
    return min(moments, default=None)


def _ran_at(attempt: Attempt, at: float) -> bool:
    return attempt.started_at <= at <= (attempt.ended_at or at) and attempt.kind is not None
