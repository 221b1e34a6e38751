"""A trial has one attempt at a time, and each resumes from a complete checkpoint."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from service.domain.attempt_holders import is_caller
from tests.chaos.audit.fault_periods import fault_periods
from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import Target

ENDS_ONE_ATTEMPT = {Target.SLOT, Target.WORKER, Target.CLIENT}
"""A fault in one of these ends at most one attempt."""
NO_WORK = {"left", "finished"}
ENDS_OF_EXPERIMENTS = {"experiment.completed", "experiment.failed", "experiment.stopped"}
LATE_SECONDS = 5.0
"""How long after an attempt was ended without its slot the processes of a slot that was killed may take to end."""
FROM_ATTEMPTS = {"report", "checkpoint", "decision"}
"""Events of a running attempt; but the decision that a paused trial continues has none."""
LOST_KINDS = {"lost", "preempted"}

INFINITY = float("inf")

Key = tuple[str, int, int]


def attempts(snapshot: Snapshot) -> Iterator[str]:
    written = by_attempt(snapshot.lines)
    for experiment in snapshot.experiments:
        yield from (f"{experiment.name}: {what}" for what in (*_by_events(experiment), *_alive_at_end(experiment)))
        for trial in experiment.trials:
            yield from (f"{experiment.name}: trial {trial.number}: {what}" for what in _rows(trial))
            lines = [written.get((experiment.id, trial.number, attempt.number), []) for attempt in trial.attempts]
            for what in (*_overlaps(snapshot, trial, lines), *_late_work(snapshot, experiment, trial, lines)):
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
    running: dict[str, int] = {}
    paused: set[str] = set()
    for event in experiment.events:
        trial = event.trial or ""
        if event.kind == "trial.paused":
            paused.add(trial)
        elif event.kind.startswith("trial."):
            paused.discard(trial)
        if event.kind == "trial.running":
            if trial in running:
                yield f"{trial} has two running attempts at event {event.seq}"
            running[trial] = event.data["attempt"]
        elif event.kind == "attempt.ended":
            if running.pop(trial, None) != event.data["attempt"]:
                yield f"an attempt of {trial} that did not live ended at event {event.seq}"
        elif event.kind in FROM_ATTEMPTS and running.get(trial) != event.data["attempt"]:
            if event.kind == "decision" and trial in paused:
                continue
            yield f"event {event.seq} is a {event.kind} of an attempt of {trial} that did not live"


def _alive_at_end(experiment: Experiment) -> Iterator[str]:
    """An experiment may go on after an end, and end again."""
    running: set[str] = set()
    for event in experiment.events:
        if event.kind == "trial.running":
            running.add(event.trial or "")
        elif event.kind == "attempt.ended":
            running.discard(event.trial or "")
        elif event.kind in ENDS_OF_EXPERIMENTS and running:
            yield f"it ended at event {event.seq}, and attempts of {', '.join(sorted(running))} still lived"


def _overlaps(snapshot: Snapshot, trial: Trial, lines: Sequence[Sequence[Line]]) -> Iterator[str]:
    """Check the journals: no work for an attempt after the next one began."""
    for attempt, own, later in zip(trial.attempts, lines, lines[1:], strict=False):
        overlap = max((line.at for line in _work(own)), default=0) - min((one.at for one in later), default=INFINITY)
        if overlap > 0 and not _may_work_on(snapshot, attempt):
            yield f"attempt {attempt.number} still worked {overlap:.2f} s after attempt {attempt.number + 1} had begun"


def _late_work(
    snapshot: Snapshot, experiment: Experiment, trial: Trial, lines: Sequence[Sequence[Line]]
) -> Iterator[str]:
    """Check the journals: no work for an attempt after its end, nor after that of its experiment."""
    end = max((event.at for event in experiment.events if event.kind in ENDS_OF_EXPERIMENTS), default=INFINITY)
    for attempt, own in zip(trial.attempts, lines, strict=True):
        ended_at = min(attempt.ended_at or INFINITY, end)
        late = [line for line in _work(own) if line.at > ended_at + LATE_SECONDS]
        if late and not _may_work_on(snapshot, attempt):
            first, seconds = late[0], late[-1].at - ended_at
            what = f"{len(late)} lines, first {first.did} at step {first.step} on rank {first.rank}"
            yield f"attempt {attempt.number} still worked {seconds:.2f} s after its end: {what}"


def _work(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.did not in NO_WORK]


def _may_work_on(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether it may work until the service refuses it: it was frozen, or cut off, for longer than its lease."""
    return _was_frozen(snapshot, attempt) or was_cut_off(snapshot, attempt)


def _was_frozen(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether what runs the attempt may have been frozen."""
    return any(fault.frozen and is_hit(fault, attempt) for fault in snapshot.record.faults)


def was_cut_off(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether the network between its agent with its slots and the services was cut for longer than a lease."""
    name = f"network of {attempt.holder}"
    periods = (one for one in fault_periods(snapshot.record) if one.fault.name == name and one.fault.frozen)
    return any(period.overlaps(attempt) for period in periods)


def is_hit(fault: Fault, attempt: Attempt) -> bool:
    """Whether the fault may be in the slot, the worker or the client that ran the attempt then."""
    return runs(fault.planned.target, attempt) and attempt.started_at <= fault.at <= (attempt.ended_at or INFINITY)


def runs(target: Target, attempt: Attempt) -> bool:
    """Whether such a target may run the attempt: a client runs those of callers, a slot and its workers all others."""
    return target in ENDS_ONE_ATTEMPT and (target is Target.CLIENT) == is_caller(attempt.holder)


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
