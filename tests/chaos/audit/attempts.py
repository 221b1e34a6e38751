"""A trial has one attempt at a time; each resumes from a complete checkpoint; none is lost without a cause."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from service.domain.failures import MAX_LOSSES
from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import Target

NO_WORK = {"left", "finished"}
FROM_ATTEMPTS = {"report", "checkpoint", "decision"}
"""Events of a living attempt; but the decision that a paused trial continues has none."""
LOST_KINDS = {"lost", "preempted"}

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
    paused: set[str] = set()
    for event in experiment.events:
        trial = event.trial or ""
        if event.kind == "trial.paused":
            paused.add(trial)
        elif event.kind.startswith("trial."):
            paused.discard(trial)
        if event.kind == "trial.running":
            if trial in living:
                yield f"{trial} has two living attempts at event {event.seq}"
            living[trial] = event.data["attempt"]
        elif event.kind == "attempt.ended":
            if living.pop(trial, None) != event.data["attempt"]:
                yield f"an attempt of {trial} that did not live ended at event {event.seq}"
        elif event.kind in FROM_ATTEMPTS and living.get(trial) != event.data["attempt"]:
            if event.kind == "decision" and trial in paused:
                continue
            yield f"event {event.seq} is a {event.kind} of an attempt of {trial} that did not live"


def _by_journals(
    snapshot: Snapshot, experiment: Experiment, trial: Trial, written: dict[Key, list[Line]]
) -> Iterator[str]:
    """Check the journals: no work for an attempt after the next one began.

    A process that was frozen beyond its lease may work on until the service refuses it; nothing of that counts.
    """
    lines = [written.get((experiment.id, trial.number, attempt.number), []) for attempt in trial.attempts]
    for attempt, own, later in zip(trial.attempts, lines, lines[1:], strict=False):
        work = [line.at for line in own if line.did not in NO_WORK]
        overlap = max(work, default=0) - min((line.at for line in later), default=float("inf"))
        if overlap > 0 and not _was_frozen(snapshot, attempt):
            yield f"attempt {attempt.number} still worked {overlap:.2f} s after attempt {attempt.number + 1} had begun"


def _was_frozen(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether what runs the attempt may have been frozen."""
    frozen = [fault for fault in snapshot.record.faults if fault.frozen and fault.planned.target in ENDS_ONE_ATTEMPT]
    return any(_hit(fault, attempt) for fault in frozen)


def _hit(fault: Fault, attempt: Attempt) -> bool:
    return attempt.started_at <= fault.at <= (attempt.ended_at or float("inf"))


def resumes(snapshot: Snapshot) -> Iterator[str]:
    """An attempt resumes from the newest checkpoint that was known when it began, complete and unchanged."""
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
    """Return for each attempt the newest checkpoint (step, URI) that was known when it began.

    A trial that exploits a donor takes over the donor's; what it had saved itself is discarded.
    """
    newest: tuple[int, str] | None = None
    known: dict[int, tuple[int, str] | None] = {}
    for event in experiment.events:
        if event.trial != trial.id:
            continue
        if event.kind == "trial.running":
            known[event.data["attempt"]] = newest
        elif event.kind == "trial.exploited":
            newest = event.data["checkpoint"]["step"], event.data["checkpoint"]["uri"]
        elif event.kind == "checkpoint" and (newest is None or event.data["step"] >= newest[0]):
            newest = event.data["step"], event.data["uri"]
    return known


def _resume(attempt: Attempt, known: tuple[int, str] | None, lines: Sequence[Line]) -> Iterator[str]:
    given = None if attempt.resume_step is None else (attempt.resume_step, attempt.resume_uri)
    if given != known:
        yield f"was given {given} to resume from; the newest known was {known}"
    for line in lines:
        if line.did == "start" and given is not None:
            yield f"started from scratch on rank {line.rank}, though it was given step {attempt.resume_step}"
        if line.did == "resumed" and line.step != attempt.resume_step:
            yield f"resumed from step {line.step} on rank {line.rank}, not from {attempt.resume_step}"
        if line.did == "resumed" and not line.sound:
            yield f"resumed from a broken checkpoint on rank {line.rank}: {line.uri}"


def losses(snapshot: Snapshot) -> Iterator[str]:
    """Each lost attempt has a fault as its cause; no trial failed with fewer losses than its budget."""
    unused = [fault for fault in snapshot.record.faults if fault.planned.target in ENDS_ONE_ATTEMPT]
    for experiment, trial, attempt in _lost_attempts(snapshot):
        if _is_broadly_explained(snapshot, experiment, trial, attempt):
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


def broadly_explained(snapshot: Snapshot) -> int:
    """How many lost attempts are explained by a fault that may end many of them."""
    return sum(_is_broadly_explained(snapshot, *one) for one in _lost_attempts(snapshot))


def _is_broadly_explained(snapshot: Snapshot, experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    return (
        _ran_on_a_killed_cluster(snapshot, attempt)
        or _was_never_started(snapshot, experiment, trial, attempt)
        or _could_not_store(snapshot, attempt)
    )


ENDS_ONE_ATTEMPT = {Target.SLOT, Target.WORKER, Target.CLIENT}
"""A fault in one of these ends at most one attempt."""


def _lost_attempts(snapshot: Snapshot) -> list[tuple[Experiment, Trial, Attempt]]:
    """Return the lost attempts by the time of their end."""
    found = [
        (experiment, trial, attempt)
        for experiment in snapshot.experiments
        for trial in experiment.trials
        for attempt in trial.attempts
        if attempt.kind in LOST_KINDS and not _is_rescheduled(experiment, attempt)
    ]
    return sorted(found, key=lambda one: one[2].ended_at or 0)


def _is_rescheduled(experiment: Experiment, attempt: Attempt) -> bool:
    """Whether it gave way without a fault: to an elastic group of another size, or because others were quicker."""
    if attempt.kind != "preempted":
        return False
    is_elastic = not isinstance(experiment.spec["trainer"]["scaling"]["num_workers"], int)
    return is_elastic or "did not become free in time" in (attempt.message or "")


def _ran_on_a_killed_cluster(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether the Ray head was killed meanwhile, with everything that ran on it."""
    return any(attempt.started_at <= at <= (attempt.ended_at or at) for at in _deaths(snapshot, Target.RAY))


def _could_not_store(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether it was lost because its checkpoints could not be saved or read while the storage was away."""
    if "checkpoint" not in (attempt.message or ""):
        return False
    away = [
        (fault.at, snapshot.record.restarted.get(number, float("inf")))
        for number, fault in enumerate(snapshot.record.faults)
        if fault.planned.target is Target.STORAGE
    ]
    return any(since <= (attempt.ended_at or since) and attempt.started_at <= until for since, until in away)


def _was_never_started(snapshot: Snapshot, experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    """Whether the agent died before a slot began the attempt. An attempt that has begun continues without its agent."""
    key = (experiment.id, trial.number, attempt.number)
    began = min((line.at for line in by_attempt(snapshot.lines).get(key, [])), default=float("inf"))
    return any(
        attempt.started_at - seconds <= at < min(began, attempt.ended_at or at)
        for target, seconds in CLAIM_SECONDS.items()
        for at in _deaths(snapshot, target)
    )


def _deaths(snapshot: Snapshot, target: Target) -> list[float]:
    fault = [one.at for one in snapshot.record.faults if one.planned.target is target]
    return fault + [death.at for death in snapshot.record.deaths if death.target is target]


CLAIM_SECONDS = {Target.AGENT: 2.0, Target.CLIENT: 2.0, Target.RAY: 60.0}
"""How long before an attempt begins its agent, its client, or its agent's cluster, may have died.

The service may answer a claim of an agent that has just died; and an agent whose Ray cluster is gone learns of it when
Ray ends its process, after a minute at most.
"""
