"""What an attempt cost, from its row, and the sums that its trial and its experiment keep."""

from datetime import datetime, timedelta

from service.domain.cost import AttemptTimes, Cost
from service.operations.attempts.leases import LeasedAttempt
from service.store.attempt_times import function_began_at, holding_seconds
from service.store.attempts import worker_count
from service.store.json_of_other_versions import stored
from service.store.sql.bulk_writes import change_later
from service.store.tables import AttemptRow
from trainer.wire import PhaseSeconds, Scaling


def cost_of(attempt: AttemptRow, scaling: Scaling, now: datetime) -> Cost:
    """The cost of an attempt that runs on workers of this scaling; until `now` if it has not ended."""
    return _cost(attempt, scaling, max(0.0, ((attempt.ended_at or now) - attempt.started_at).total_seconds()))


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
    unknown = _times(attempt, leased.seconds_since(attempt.started_at), 0.0).unknown
    attempt.phases = {**attempt.phases, "idle": phases.idle + unknown}


def add_to_sums(leased: LeasedAttempt) -> Cost:
    """Add the attempt, which has ended, to its trial and experiment. Returns the attempt's own cost."""
    experiment, trial = leased.experiment, leased.trial
    cost = _cost(leased.attempt, leased.spec.trainer.scaling, leased.seconds_since(leased.attempt.started_at))
    trial.cost = (Cost.from_json(trial.cost) + cost).to_json()
    change_later(experiment, cost=(Cost.from_json(experiment.cost) + cost).to_json())
    return cost


def _cost(attempt: AttemptRow, scaling: Scaling, elapsed: float) -> Cost:
    times = _times(attempt, elapsed, holding_seconds(attempt, elapsed))
    return times.cost(worker_count(attempt, scaling), scaling.group.worker.get("GPU", 0.0))


def _times(attempt: AttemptRow, elapsed: float, holding: float) -> AttemptTimes:
    began_at, queued_at, started_at = function_began_at(attempt), attempt.queued_at, attempt.started_at
    return AttemptTimes(
        waiting=None if queued_at is None else max(0.0, (started_at - queued_at).total_seconds()),
        elapsed=elapsed,
        holding=holding,
        starting=None if began_at is None else (began_at - started_at).total_seconds(),
        phases=None if attempt.phases is None else stored(PhaseSeconds, attempt.phases),
    )
