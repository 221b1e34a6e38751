"""A user's accepted stop of a trial: the trial ends as stopped, soon, and begins again only by a later retry.

A running trial stops at its next report. It may complete instead if it had made its last report before. While its slot
cannot reach the service, it trains on, and may complete without knowing of the stop: `undecided_stops` counts these.
"""

from collections.abc import Iterator, Sequence

from tests.chaos.audit.fault_periods import fault_periods
from tests.chaos.evidence.calls import Call
from tests.chaos.evidence.snapshot import Event, Experiment, Snapshot, Trial
from tests.chaos.faults.schedule import Target
from tests.chaos.run import Record
from trainer.wire import STOP_GRACE_SECONDS

STOP_SECONDS = STOP_GRACE_SECONDS + 30
"""How long a trial may go on after the answer, without the time in which its slot could not reach the service."""
RECOVERY_SECONDS = 30.0
"""How long a service may need until it answers after it was started again."""
ENDS = {"trial.stopped", "trial.completed", "trial.pruned", "trial.failed"}
BEGINS = {"trial.queued", "trial.running"}
OUTAGES = {Target.SERVICE, Target.DATABASE, Target.DISK, Target.NETWORK, Target.UP}
"""The targets without which a slot does not learn of a stop."""


def stops(experiment: Experiment, calls: Sequence[Call], record: Record) -> Iterator[str]:
    for call, trial in _accepted(experiment, calls):
        whose = f"trial {trial.number}"
        yield from (f"{whose} {what}" for what in _effect(experiment, trial, call, record))
        yield from (f"{whose} {what}" for what in _restarts(experiment, trial, call, calls))


def undecided_stops(snapshot: Snapshot) -> int:
    """How many accepted stops had no effect, and perhaps could have none."""
    return sum(
        (end := _end(experiment, trial, call)) is not None
        and _went_on(trial, call, end)
        and _was_out_of_reach(snapshot.record, call.at, end.at)
        for experiment in snapshot.experiments
        for call, trial in _accepted(experiment, snapshot.calls)
    )


def _accepted(experiment: Experiment, calls: Sequence[Call]) -> list[tuple[Call, Trial]]:
    """The accepted stops, each with its trial, if that had not ended before."""
    trials = {trial.id: trial for trial in experiment.trials}
    found = ((call, trials[call.of]) for call in calls if call.what == "stop" and call.accepted and call.of in trials)
    return [(call, trial) for call, trial in found if not _has_ended(experiment, trial, call.at)]


def _has_ended(experiment: Experiment, trial: Trial, at: float) -> bool:
    before = [event.kind for event in moves_of(experiment, trial.id) if event.at < at]
    return bool(before) and before[-1] in ENDS


def _end(experiment: Experiment, trial: Trial, call: Call) -> Event | None:
    """The trial's first end after the call was made."""
    return next((one for one in moves_of(experiment, trial.id) if one.at >= call.at and one.kind in ENDS), None)


def _effect(experiment: Experiment, trial: Trial, call: Call, record: Record) -> Iterator[str]:
    end = _end(experiment, trial, call)
    if end is None:
        yield "never ended after it was stopped"
        return
    if _went_on(trial, call, end) and not _was_out_of_reach(record, call.at, end.at):
        yield f"reported after it was stopped, and is {end.kind.removeprefix('trial.')} (event {end.seq})"
    seconds = _reachable_seconds(record, call.answered_at, end.at)
    if seconds > STOP_SECONDS:
        yield f"ended {seconds:.0f} s after it was stopped (event {end.seq})"


def _went_on(trial: Trial, call: Call, end: Event) -> bool:
    """Whether it reported after the answer, and ended in another way than by the stop."""
    reported = any(call.answered_at < point.at <= end.at for point in trial.curve)
    return reported and end.kind != "trial.stopped"


def _was_out_of_reach(record: Record, since: float, until: float) -> bool:
    periods = [(begin, end) for begin, end in _outages(record) if begin <= until and since <= end + RECOVERY_SECONDS]
    return bool(periods)


def _reachable_seconds(record: Record, since: float, until: float) -> float:
    """How much of this time no target was away without which a slot does not learn of a stop."""
    away, at = 0.0, since
    for begin, end in sorted(_outages(record)):
        seconds = min(end, until) - max(begin, at)
        if seconds > 0:
            away, at = away + seconds, end
    return max(until - since, 0) - away


def _outages(record: Record) -> list[tuple[float, float]]:
    periods = [(one.since, one.until) for one in fault_periods(record) if one.fault.planned.target in OUTAGES]
    return periods + [(death.at, death.at) for death in record.deaths if death.target in OUTAGES]


def _restarts(experiment: Experiment, trial: Trial, call: Call, calls: Sequence[Call]) -> Iterator[str]:
    retries = [one for one in calls if (one.what, one.of) == ("retry", call.of)]
    for event in moves_of(experiment, trial.id):
        retried = any(call.at < one.at <= event.at or (one.at < call.at and one.maybe_late) for one in retries)
        if event.at > call.answered_at and event.kind in BEGINS and not retried:
            yield f"was {event.kind.removeprefix('trial.')} again (event {event.seq}) after it was stopped"


def moves_of(experiment: Experiment, trial: str) -> list[Event]:
    return [event for event in experiment.events if event.trial == trial and event.kind.startswith("trial.")]
