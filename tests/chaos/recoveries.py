"""How long it took until there was evidence that a struck part, or what depended on it, works again."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.schedule import Victim
from tests.chaos.snapshot import Attempt, Snapshot
from tests.chaos.victims import Struck
from tests.chaos.watch import MLFLOW, Sample

RECENT_SECONDS = 10.0


@dataclass(frozen=True)
class Recovery:
    """`seconds` are counted from when the part was started again; where nothing is, from the strike."""

    victim: Victim
    variant: str
    until: str
    seconds: float


def recoveries(snapshot: Snapshot) -> Iterator[Recovery]:
    """Strikes without evidence (the experiments had ended by then) are left out."""
    for number, struck in enumerate(snapshot.record.struck):
        since = snapshot.record.restarted.get(number, struck.at) if not struck.frozen else struck.at
        for until, at in _evidence(snapshot, struck, since).items():
            if at is not None:
                yield Recovery(struck.kill.victim, struck.kill.variant, until, at - since)


def _evidence(snapshot: Snapshot, struck: Struck, since: float) -> dict[str, float | None]:
    match struck.kill.victim:
        case Victim.SERVICE:
            ready = (one.at for one in _samples(snapshot, struck.who) if one.ready and one.at > since)
            agents = {agent for agent, service in snapshot.record.service_of.items() if service == struck.who}
            return {"it is ready": min(ready, default=None), "a report is stored": _stored(snapshot, since, agents)}
        case Victim.AGENT:
            heard = (one.at for one in snapshot.record.samples if one.seen.get(struck.who, 0) > since)
            return {"it asks for work": min(heard, default=None)}
        case Victim.MLFLOW:
            return {"it has caught up": _caught_up(snapshot, struck.at, since)}
        case Victim.DATABASE:
            return {"a report is stored": _stored(snapshot, since, None)}
        case _:
            return {"an attempt goes on": _retried(snapshot, struck)}


def _samples(snapshot: Snapshot, service: str) -> list[Sample]:
    return [sample for sample in snapshot.record.samples if sample.service == service]


def _stored(snapshot: Snapshot, since: float, agents: set[str] | None) -> float | None:
    """When the first report after `since` was stored, of attempts of these agents."""
    moments = []
    for trial in (trial for experiment in snapshot.experiments for trial in experiment.trials):
        of = {attempt.number for attempt in trial.attempts if agents is None or attempt.holder in agents}
        moments += [point.at for point in trial.curve if point.attempt in of and point.at > since]
    return min(moments, default=None)


def _caught_up(snapshot: Snapshot, struck_at: float, since: float) -> float | None:
    """When MLflow answered again, and the mirror lagged no more than it had of late before the strike."""
    answers = min((one.at for one in _samples(snapshot, MLFLOW) if one.ready and one.at > since), default=None)
    if answers is None:
        return None
    told = [sample for sample in snapshot.record.samples if sample.lag is not None]
    usual = max((one.lag or 0 for one in told if struck_at - RECENT_SECONDS < one.at < struck_at), default=0)
    return min((one.at for one in told if one.at > answers and (one.lag or 0) <= usual), default=None)


def _retried(snapshot: Snapshot, struck: Struck) -> float | None:
    """When the trial whose attempt was taken had its next attempt."""
    moments = []
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            for attempt, following in pairwise(trial.attempts):
                key = (experiment.id, trial.number, attempt.number)
                if struck.attempt == key or (struck.attempt is None and _ran_at(attempt, struck.at)):
                    moments.append(following.started_at)
    return min(moments, default=None)


def _ran_at(attempt: Attempt, at: float) -> bool:
    return attempt.started_at <= at <= (attempt.ended_at or at) and attempt.kind is not None
