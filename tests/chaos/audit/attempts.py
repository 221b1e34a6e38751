"""One attempt of a trial at a time; each goes on where a whole checkpoint was; none is lost without a cause."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from service.domain.failures import MAX_LOSSES
from tests.chaos.journals import Line
from tests.chaos.schedule import Victim
from tests.chaos.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.victims import Struck

HARMLESS = {"left"}
TAKEN = {"lost", "preempted"}

Key = tuple[str, int, int]


def attempts(snapshot: Snapshot) -> Iterator[str]:
    written = by_attempt(snapshot.lines)
    for experiment in snapshot.experiments:
        yield from (f"{experiment.name}: {what}" for what in _by_events(experiment))
        for trial in experiment.trials:
            yield from (f"{experiment.name}: trial {trial.number}: {what}" for what in _rows(trial))
            for what in _by_journals(snapshot, experiment, trial, written):
                yield f"{experiment.name}: trial {trial.number}: {what}"


def by_attempt(lines: Sequence[Line]) -> dict[Key, list[Line]]:
    found: dict[Key, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.experiment_id, line.trial, line.attempt].append(line)
    return found


def _rows(trial: Trial) -> Iterator[str]:
    numbers = [attempt.number for attempt in trial.attempts]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its attempts are {numbers}"
    yield from (f"attempt {one.number} never ended" for one in trial.attempts if one.ended_at is None)
    for one, other in pairwise(trial.attempts):
        if one.ended_at is not None and other.started_at < one.ended_at:
            yield f"attempt {other.number} began before attempt {one.number} had ended"


def _by_events(experiment: Experiment) -> Iterator[str]:
    living: dict[str, int] = {}
    for event in experiment.events:
        trial = event.trial or ""
        if event.kind == "trial.running":
            if trial in living:
                yield f"{trial} has two living attempts at event {event.seq}"
            living[trial] = event.data["attempt"]
        elif event.kind == "attempt.ended":
            if living.pop(trial, None) != event.data["attempt"]:
                yield f"an attempt of {trial} that did not live ended at event {event.seq}"
        elif event.kind in {"report", "checkpoint", "decision"} and living.get(trial) != event.data["attempt"]:
            yield f"event {event.seq} is a {event.kind} of an attempt of {trial} that did not live"


def _by_journals(
    snapshot: Snapshot, experiment: Experiment, trial: Trial, written: dict[Key, list[Line]]
) -> Iterator[str]:
    """What the functions themselves wrote: no work for one attempt after the next had begun.

    A holder that was frozen beyond its lease may wake up and work on until it is refused; nothing of it counts.
    """
    lines = [written.get((experiment.id, trial.number, attempt.number), []) for attempt in trial.attempts]
    for attempt, own, later in zip(trial.attempts, lines, lines[1:], strict=False):
        work = [line.at for line in own if line.did not in HARMLESS]
        overlap = max(work, default=0) - min((line.at for line in later), default=float("inf"))
        if overlap > 0 and not _was_frozen(snapshot, attempt):
            yield f"attempt {attempt.number} still worked {overlap:.2f} s after attempt {attempt.number + 1} had begun"


def _was_frozen(snapshot: Snapshot, attempt: Attempt) -> bool:
    return any(_hit(struck, attempt) for struck in snapshot.record.struck if struck.frozen)


def _hit(struck: Struck, attempt: Attempt) -> bool:
    return attempt.started_at <= struck.at <= (attempt.ended_at or float("inf"))


def resumes(snapshot: Snapshot) -> Iterator[str]:
    """An attempt goes on from the newest checkpoint that was known when it began, whole and as it was saved."""
    written = by_attempt(snapshot.lines)
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            saved = _known_at_start(experiment, trial)
            for attempt in trial.attempts:
                whose = f"{experiment.name}: trial {trial.number}, attempt {attempt.number}"
                lines = written.get((experiment.id, trial.number, attempt.number), [])
                known = saved.get(attempt.number)
                yield from (f"{whose} {what}" for what in _resume(attempt, known, lines))
            for one in trial.checkpoints:
                if one.fault:
                    yield f"{experiment.name}: trial {trial.number}: its checkpoint of step {one.step}: {one.fault}"


def _known_at_start(experiment: Experiment, trial: Trial) -> dict[int, tuple[int, str] | None]:
    """For each attempt the newest checkpoint (step, URI) told of before it began."""
    newest: tuple[int, str] | None = None
    known: dict[int, tuple[int, str] | None] = {}
    for event in experiment.events:
        if event.trial != trial.id:
            continue
        if event.kind == "trial.running":
            known[event.data["attempt"]] = newest
        elif event.kind == "checkpoint" and (newest is None or event.data["step"] >= newest[0]):
            newest = event.data["step"], event.data["uri"]
    return known


def _resume(attempt: Attempt, known: tuple[int, str] | None, lines: Sequence[Line]) -> Iterator[str]:
    given = None if attempt.resume_step is None else (attempt.resume_step, attempt.resume_uri)
    if given != known:
        yield f"was given {given} to go on from; the newest known was {known}"
    for line in lines:
        if line.did == "start" and given is not None:
            yield f"began from nothing on rank {line.rank}, though it was given step {attempt.resume_step}"
        if line.did == "resumed" and line.step != attempt.resume_step:
            yield f"went on from step {line.step} on rank {line.rank}, not from {attempt.resume_step}"
        if line.did == "resumed" and not line.sound:
            yield f"went on from a broken checkpoint on rank {line.rank}: {line.uri}"


def losses(snapshot: Snapshot) -> Iterator[str]:
    """Each lost attempt has a strike that took it; no trial failed for fewer losses than its budget."""
    unused = [struck for struck in snapshot.record.struck if struck.kill.victim in TAKES_ONE]
    for experiment, trial, attempt in _taken(snapshot):
        if _in_a_ruin(snapshot, attempt) or _never_handed_on(snapshot, experiment, trial, attempt):
            continue
        key = (experiment.id, trial.number, attempt.number)
        exact = next((one for one in unused if one.attempt == key), None)
        cause = exact or next((one for one in unused if one.attempt is None and _hit(one, attempt)), None)
        if cause is not None:
            unused.remove(cause)
            continue
        whose = f"{experiment.name}: trial {trial.number}, attempt {attempt.number}"
        yield f"{whose} was {attempt.kind} though nothing that ran it was killed: {attempt.message}"
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            count = sum(attempt.kind == "lost" for attempt in trial.attempts)
            if trial.failure_kind == "lost" and count <= MAX_LOSSES:
                yield f"{experiment.name}: trial {trial.number} failed after {count} losses; its budget is {MAX_LOSSES}"


TAKES_ONE = {Victim.SLOT, Victim.WORKER}
"""What takes at most one attempt with it."""


def _taken(snapshot: Snapshot) -> list[tuple[Experiment, Trial, Attempt]]:
    """The lost attempts in the order in which they ended."""
    found = [
        (experiment, trial, attempt)
        for experiment in snapshot.experiments
        for trial in experiment.trials
        for attempt in trial.attempts
        if attempt.kind in TAKEN
    ]
    return sorted(found, key=lambda one: one[2].ended_at or 0)


def _in_a_ruin(snapshot: Snapshot, attempt: Attempt) -> bool:
    """A Ray head takes everything that runs on it."""
    return any(attempt.started_at <= at <= (attempt.ended_at or at) for at in _deaths(snapshot, Victim.RAY))


def _never_handed_on(snapshot: Snapshot, experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    """An agent takes with it what it was given and its slots had not begun yet. What has begun goes on without it."""
    key = (experiment.id, trial.number, attempt.number)
    began = min((line.at for line in by_attempt(snapshot.lines).get(key, [])), default=float("inf"))
    return any(
        attempt.started_at - seconds <= at < min(began, attempt.ended_at or at)
        for victim, seconds in CLAIM_SECONDS.items()
        for at in _deaths(snapshot, victim)
    )


def _deaths(snapshot: Snapshot, victim: Victim) -> list[float]:
    struck = [one.at for one in snapshot.record.struck if one.kill.victim is victim]
    return struck + [death.at for death in snapshot.record.deaths if death.victim is victim]


CLAIM_SECONDS = {Victim.AGENT: 2.0, Victim.RAY: 60.0}
"""How long before an attempt begins its agent, or its agent's cluster, may have died.

The service answers a claim that nobody hears any more; and an agent whose Ray is gone does not know it before Ray ends
it, after a minute at most.
"""
