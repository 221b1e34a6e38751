"""No attempt is lost without a cause, and no trial fails before its budget of losses is spent."""

import re
from collections.abc import Iterator, Sequence

from service.domain.attempt_holders import is_caller
from service.domain.retry_policy import MAX_LOSSES
from service.stack.http_checks import AGENT_NAME
from tests.chaos.audit.attempts import (
    ENDS_ONE_ATTEMPT,
    INFINITY,
    LOST_KINDS,
    Key,
    by_attempt,
    is_hit,
    runs,
    was_cut_off,
)
from tests.chaos.audit.fault_periods import fault_periods
from tests.chaos.evidence.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import GUARDIAN, Target
from trainer.resources import WorkerGroup

Lost = tuple[Experiment, Trial, Attempt]


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


def _lost_attempts(snapshot: Snapshot) -> list[Lost]:
    """Return the lost attempts by the time of their end."""
    return [one for one in _ended_early(snapshot) if not _gave_way(*one)]


def unexplained_preemptions(snapshot: Snapshot) -> int:
    """How many attempts gave way without a fault of which nothing is known but what they say themselves."""
    return sum(_gave_way(*one) and not _is_followed_by_another_size(*one) for one in _ended_early(snapshot))


def _ended_early(snapshot: Snapshot) -> list[Lost]:
    found = [
        (experiment, trial, attempt)
        for experiment in snapshot.experiments
        for trial in experiment.trials
        for attempt in trial.attempts
        if attempt.kind in LOST_KINDS
    ]
    return sorted(found, key=lambda one: one[2].ended_at or 0)


def _gave_way(experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    """Whether it gave way without a fault: to an elastic group of another size, or because others were quicker."""
    if attempt.kind != "preempted":
        return False
    resized = RESIZED.search(attempt.message or "")
    if resized is None:
        return NOT_FREE in (attempt.message or "")
    before, after = map(int, resized.groups())
    is_its_own = before == _world_sizes(experiment, trial).get(attempt.number, before)
    return before != after and is_its_own and _is_elastic(experiment)


def _is_followed_by_another_size(experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    sizes = _world_sizes(experiment, trial)
    own, following = sizes.get(attempt.number), sizes.get(attempt.number + 1)
    return None not in (own, following) and own != following


def _world_sizes(experiment: Experiment, trial: Trial) -> dict[int, int]:
    """How many workers each attempt of an elastic group had, as far as they have reported."""
    sizes = (event for event in experiment.events if (event.kind, event.trial) == ("attempt.world_size", trial.id))
    return {event.data["attempt"]: event.data["world_size"] for event in sizes}


def _is_elastic(experiment: Experiment) -> bool:
    scaling = experiment.spec["trainer"].get("scaling")
    return scaling is not None and WorkerGroup.of(scaling).is_elastic


def _ran_on_a_killed_cluster(snapshot: Snapshot, attempt: Attempt) -> bool:
    """Whether the Ray head was killed meanwhile, with everything that ran on it. A caller runs nothing there."""
    deaths = _deaths(snapshot, Target.RAY, attempt)
    return any(attempt.started_at <= at <= (attempt.ended_at or at) for at in deaths)


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
    """The kill of a slot, or a client, whose last call, for its next attempt, may have been answered afterwards."""
    if by_attempt(snapshot.lines).get(key):
        return None
    asking = {Target.SLOT, Target.CLIENT}
    kills = (one for one in faults if one.planned.target in asking and runs(one.planned.target, attempt))
    return next((one for one in kills if not one.frozen and _may_be_answered_to(snapshot, one.at, attempt)), None)


def _may_be_answered_to(snapshot: Snapshot, asked_at: float, attempt: Attempt) -> bool:
    """Whether the attempt may be the answer to a call of this time."""
    return asked_at <= attempt.started_at <= _answered_by(snapshot, asked_at)


def _answered_by(snapshot: Snapshot, asked_at: float) -> float:
    """When a service has answered a call of this time at the latest: a frozen one answers when it goes on."""
    periods = (one for one in fault_periods(snapshot.record) if one.fault.frozen)
    services = (one for one in periods if one.fault.planned.target is Target.SERVICE)
    unfrozen = [one.until for one in services if one.since <= asked_at <= one.until]
    return max([asked_at, *unfrozen]) + ANSWER_SECONDS


def _was_never_started(snapshot: Snapshot, experiment: Experiment, trial: Trial, attempt: Attempt) -> bool:
    """Whether its holder died before the attempt began. One that has begun continues without its agent."""
    key = (experiment.id, trial.number, attempt.number)
    began = min((line.at for line in by_attempt(snapshot.lines).get(key, [])), default=INFINITY)
    until = min(began, attempt.ended_at or INFINITY)
    holders = (*_deaths(snapshot, Target.AGENT, attempt), *_deaths(snapshot, Target.CLIENT, attempt))
    clusters = _deaths(snapshot, Target.RAY, attempt)
    return any(
        at < until and (attempt.started_at <= at or _may_be_answered_to(snapshot, at, attempt)) for at in holders
    ) or any(attempt.started_at - GONE_SECONDS <= at < until for at in clusters)


def _deaths(snapshot: Snapshot, target: Target, attempt: Attempt) -> list[float]:
    """When such a target died that the attempt may have needed: its own agent, its client, or the cluster of agents."""
    faults = [(one.at, one.name) for one in snapshot.record.faults if one.planned.target is target]
    deaths = [(one.at, one.name) for one in snapshot.record.deaths if one.target is target]
    is_own = is_caller(attempt.holder) == (target is Target.CLIENT)
    return [at for at, name in faults + deaths if is_own and (target is not Target.AGENT or name == attempt.holder)]


NEAR_SECONDS = 60.0

ANSWER_SECONDS = 2.0
"""How long the service may need for the answer to a slot, an agent or a client that has just died."""

GONE_SECONDS = 60.0
"""How long before an attempt begins the cluster of its agent may have died.

An agent whose Ray cluster is gone learns of it when Ray ends its process, after a minute at most.
"""

CLEANUP_SECONDS = 10.0
"""How long after its start an `up` may take to end what an earlier one has left running."""

NOT_FREE = "did not become free in time"
RESIZED = re.compile(r"the elastic group is resized from (\d+) to (\d+) worker")
