"""What an attempt cost, from its row, and the sums that its trial and its experiment keep."""

from datetime import datetime, timedelta

from service.domain.cost import AttemptTimes, Cost
from service.operations.attempts.leases import LeasedAttempt
from service.store.attempt_times import function_began_at, holding_seconds
from service.store.attempts import worker_count
from service.store.json_of_other_versions import stored
from service.store.sql.write_session import change_later
from service.store.tables import AttemptRow
from trainer.wire import PhaseSeconds, Scaling


def cost_of(attempt: AttemptRow, scaling: Scaling, now: datetime) -> Cost:
    """The cost of an attempt that runs on workers of this scaling; until `now` if it has not ended."""
    times = _times(attempt, attempt.ended_at or now, holding_seconds(attempt, now))
    return times.cost(worker_count(attempt, scaling), scaling.group.worker.get("GPU", 0.0))


def note_phases(leased: LeasedAttempt, phases: PhaseSeconds | None) -> None:
    """Keep what a heartbeat tells."""
    if phases is not None:
        change_later(leased.attempt, phases=phases.model_dump())


def note_last_phases(leased: LeasedAttempt, phases: PhaseSeconds | None) -> None:
    """Keep what the holder tells with the end. The time since it made the message was idle time.

    The function of a short attempt began after its only heartbeat, so the phases also tell when that was.
    """
    attempt = leased.attempt
    if phases is None:
        return
    if phases.total and function_began_at(attempt) is None:
        attempt.began_at = leased.now - timedelta(seconds=phases.total)
    attempt.phases = phases.model_dump()
    unknown = _times(attempt, leased.now, 0.0).unknown
    attempt.phases = {**attempt.phases, "idle": phases.idle + unknown}


def add_to_sums(leased: LeasedAttempt) -> Cost:
    """Add the attempt, which has ended, to its trial and experiment. Returns the attempt's own cost."""
    experiment, trial = leased.experiment, leased.trial
    cost = cost_of(leased.attempt, leased.spec.trainer.scaling, leased.now)
    trial.cost = (Cost.from_json(trial.cost) + cost).to_json()
    change_later(experiment, cost=(Cost.from_json(experiment.cost) + cost).to_json())
    return cost


def _times(attempt: AttemptRow, until: datetime, holding: float) -> AttemptTimes:
    began_at, queued_at, started_at = function_began_at(attempt), attempt.queued_at, attempt.started_at
    return AttemptTimes(
        waiting=None if queued_at is None else (started_at - queued_at).total_seconds(),
        elapsed=max(0.0, (until - started_at).total_seconds()),
        holding=holding,
        starting=None if began_at is None else (began_at - started_at).total_seconds(),
        phases=None if attempt.phases is None else stored(PhaseSeconds, attempt.phases),
    )
