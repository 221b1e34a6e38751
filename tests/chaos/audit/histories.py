"""The event log: complete, the same in SQL and in the API, and each status change allowed."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from service.domain.statuses import LIVE_TRIAL, TRIAL_MOVES, TRIAL_REVIVALS, TrialStatus
from tests.chaos.evidence.snapshot import Event, Experiment, Snapshot

STATUSES = {f"trial.{status}": status for status in TrialStatus}


def events_whole(snapshot: Snapshot) -> Iterator[str]:
    """Events are numbered from 1 without gaps, and the API shows the same ones."""
    for experiment in snapshot.experiments:
        numbers = [event.seq for event in experiment.events]
        if numbers != list(range(1, experiment.event_count + 1)):
            yield f"{experiment.name}: its events are not numbered 1 to {experiment.event_count}: {_gaps(numbers)}"
        if experiment.shown_events != experiment.events:
            yield f"{experiment.name}: the API shows other events than SQL has"
        if experiment.events and experiment.events[-1].kind != f"experiment.{experiment.status}":
            yield f"{experiment.name}: its last event is {experiment.events[-1].kind}, not its end"


def histories(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        yield from (f"{experiment.name}: {what}" for what in _moves(experiment))
        yield from (f"{experiment.name}: {what}" for what in _parallelism(experiment))
        yield from (f"{experiment.name}: {what}" for what in _reports(experiment))
        yield from (f"{experiment.name}: {what}" for what in _checkpoints(experiment))


def _checkpoints(experiment: Experiment) -> Iterator[str]:
    """Each checkpoint has one event, however often its report was sent."""
    events = Counter((event.trial, event.data["uri"]) for event in experiment.events if event.kind == "checkpoint")
    yield from (
        f"the checkpoint {uri} of {trial} has {count} events" for (trial, uri), count in events.items() if count > 1
    )


def _gaps(numbers: list[int]) -> str:
    odd = [(one, other) for one, other in pairwise(numbers) if other != one + 1]
    return f"{len(numbers)} of them, {', '.join(f'{other} follows {one}' for one, other in odd[:5]) or 'not from 1'}"


def _moves(experiment: Experiment) -> Iterator[str]:
    """Each trial's status changes are allowed ones, from queued to the status that it has."""
    status: dict[str, TrialStatus] = {trial.id: TrialStatus.QUEUED for trial in experiment.trials}
    number = {trial.id: trial.number for trial in experiment.trials}
    for event in experiment.events:
        to = STATUSES.get(event.kind)
        if to is None or event.trial is None:
            continue
        before = status.get(event.trial)
        if before is None:
            yield f"event {event.seq} is of a trial that does not exist: {event.trial}"
        elif to not in TRIAL_MOVES[before] and to not in TRIAL_REVIVALS.get(before, ()):
            yield f"trial {number[event.trial]} moved from {before} to {to} (event {event.seq})"
        status[event.trial] = to
    for trial in experiment.trials:
        if status[trial.id] != trial.status or trial.shown_status != trial.status:
            statuses = f"by its events {status[trial.id]}, in SQL {trial.status}, by the API {trial.shown_status}"
            yield f"trial {trial.number} is {statuses}"


def _parallelism(experiment: Experiment) -> Iterator[str]:
    """A user may change the limit; the attempts that run then may go on."""
    most = _first_parallelism(experiment)
    running: set[str] = set()
    for event in experiment.events:
        to = STATUSES.get(event.kind)
        if event.data.get("field") == "limits.parallelism":
            most = event.data["after"]
        if event.trial is None or to is None:
            continue
        if to is TrialStatus.RUNNING:
            running.add(event.trial)
        elif to not in LIVE_TRIAL or to in {TrialStatus.QUEUED, TrialStatus.PAUSED}:
            running.discard(event.trial)
        if to is TrialStatus.RUNNING and len(running) > most:
            yield f"{len(running)} trials ran at once at event {event.seq}; parallelism is {most}"


def _first_parallelism(experiment: Experiment) -> int:
    changes = [event.data for event in experiment.events if event.data.get("field") == "limits.parallelism"]
    return int(changes[0]["before"] if changes else experiment.spec["limits"]["parallelism"])


def _reports(experiment: Experiment) -> Iterator[str]:
    """Each point of a curve has one event with the same content, and there are no others."""
    reported: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for event in experiment.events:
        if event.kind == "report" and event.trial is not None:
            reported[event.trial].append(_point(event))
    for trial in experiment.trials:
        curve = [(point.step, point.attempt, point.sequence, str(point.metrics)) for point in trial.curve]
        if sorted(reported[trial.id]) != sorted(curve):
            event_count = len(reported[trial.id])
            yield f"trial {trial.number}: {event_count} report events do not make up its {len(curve)} points"


def _point(event: Event) -> tuple[int, int, int, str]:
    data = event.data
    return data["step"], data["attempt"], data["sequence"], str(data["metrics"])
