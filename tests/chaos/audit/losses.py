"""No attempt is lost without a cause, and no trial fails before its budget of losses is spent."""

from collections.abc import Iterator, Sequence

from service.domain.retry_policy import MAX_LOSSES
from service.stack.http_checks import AGENT_NAME
from tests.chaos.audit.attempts import ENDS_ONE_ATTEMPT, LOST_KINDS, Key, by_attempt, is_hit, was_cut_off
from tests.chaos.audit.fault_periods import fault_periods
from tests.chaos.evidence.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import GUARDIAN, Target
from trainer.resources import WorkerGroup


def losses(snapshot: Snapshot) -> Iterator[str]:
    """Each lost attempt has a fault as its cause; no trial failed with fewer losses than its budget."""
    unused = [fault for fault in snapshot.record.faults if fault.planned.target in ENDS_ONE_ATTEMPT]
    for experiment, trial, attempt in _lost_attempts(snapshot):
        if _is_broadly_explained(snapshot, experiment, trial, attempt):
            continue
        key = (experiment.id, trial.number, attempt.number)
        exact = next((one for one in unused if one.attempt == key), None)
        hits = (one for one in unused if one.attempt is None and is_hit(one, attempt))
        cause = exact or next(hits, None) or _killed_asking(snapshot, key, attempt, unused)
        if cause is not None:
            unused.remove(cause)
            continue
        whose = f"{experiment.name}: trial {trial.number}, attempt {attempt.number}"
        what = f"{whose} was {attempt.kind} though nothing that ran it was killed: {attempt.message}"
        yield f"{what}; {_faults_around(snapshot, attempt)}"
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            count = sum(attempt.kind == "lost" for attempt in trial.attempts)
            if trial.failure_kind == "lost" and count <= MAX_LOSSES:
                yield f"{experiment.name}: trial {trial.number} failed after {count} losses; its budget is {MAX_LOSSES}"


def _faults_around(snapshot: Snapshot, attempt: Attempt) -> str:
    """What a reader needs to find the cause: the evidence is removed after the run."""
    began, ended = attempt.started_at, attempt.ended_at or attempt.started_at
    near = [one for one in snapshot.record.faults if began - NEAR_SECONDS <= one.at <= ended]
    shown = ", ".join(f"{one.planned.kind} {one.at - began:+.1f}" for one in near)
    return f"it ran for {ended - began:.1f} s; faults, in seconds after its start: {shown or 'none'}"


def broadly_explained(snapshot: Snapshot) -> int:
    """How many lost attempts are explained by a fault that may end many of them."""
    return sum(_is_broadly_explained(snapshot, *one) for one in _lost_attempts(snapshot))


def _is_broadly_explained(snapshot: Snapshot, experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    return (
        _ran_on_a_killed_cluster(snapshot, attempt)
        or _was_never_started(snapshot, experiment, trial, attempt)
        or _could_not_store(snapshot, attempt)
        or _was_silent_by_a_cut(snapshot, attempt)
        or _ran_below_a_killed_up(snapshot, attempt)
    )


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
    is_elastic = WorkerGroup.of(experiment.spec["trainer"]["scaling"]).is_elastic
    return is_elastic or "did not become free in time" in (attempt.message or "")


def _ran_on_a_killed_cluster(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether the Ray head was killed meanwhile, with everything that ran on it."""
    return any(attempt.started_at <= at <= (attempt.ended_at or at) for at in _deaths(snapshot, Target.RAY))


def _could_not_store(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether its checkpoints could not be saved or read while the storage was away or its disk was full."""
    away = {Target.STORAGE, Target.DISK}
    periods = (period for period in fault_periods(snapshot.record) if period.fault.planned.target in away)
    return "checkpoint" in (attempt.message or "") and any(period.overlaps(attempt) for period in periods)


def _was_silent_by_a_cut(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether its lease expired because the network between its agent with its slots and the services was cut."""
    return "no heartbeat from" in (attempt.message or "") and was_cut_off(snapshot, attempt)


def _ran_below_a_killed_up(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether `up` was killed meanwhile, with or without its guardian, and all that it ran was ended, or was later."""
    killed = [one for one in fault_periods(snapshot.record) if one.fault.planned.target is Target.UP]
    periods = [(one.since, one.until) for one in killed if one.fault.planned.variant != GUARDIAN]
    periods += [(death.at, death.at) for death in snapshot.record.deaths if death.target is Target.UP]
    return attempt.holder == AGENT_NAME and any(
        since <= (attempt.ended_at or since) and attempt.started_at <= until + CLEANUP_SECONDS
        for since, until in periods
    )


def _killed_asking(snapshot: Snapshot, key: Key, attempt: Attempt, faults: Sequence[Fault]) -> Fault | None:
    """The kill of a slot whose last call, for its next attempt, the service may have answered afterwards."""
    if by_attempt(snapshot.lines).get(key):
        return None
    kills = (one for one in faults if one.planned.target is Target.SLOT and not one.frozen)
    return next((one for one in kills if one.at <= attempt.started_at <= _answered_by(snapshot, one.at)), None)


def _answered_by(snapshot: Snapshot, asked_at: float) -> float:
    """When a service has answered a call of this time at the latest: a frozen one answers when it goes on."""
    periods = (one for one in fault_periods(snapshot.record) if one.fault.frozen)
    services = (one for one in periods if one.fault.planned.target is Target.SERVICE)
    unfrozen = [one.until for one in services if one.since <= asked_at <= one.until]
    return max([asked_at, *unfrozen]) + ANSWER_SECONDS


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


NEAR_SECONDS = 60.0

ANSWER_SECONDS = 2.0
"""How long the service may need for the answer to a slot that has just died."""

CLAIM_SECONDS = {Target.AGENT: 2.0, Target.CLIENT: 2.0, Target.RAY: 60.0}
"""How long before an attempt begins its agent, its client, or its agent's cluster, may have died.

The service may answer a claim of an agent that has just died; and an agent whose Ray cluster is gone learns of it when
Ray ends its process, after a minute at most.
"""

CLEANUP_SECONDS = 10.0
"""How long after its start an `up` may take to end what an earlier one has left running."""
