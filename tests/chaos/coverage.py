"""What a run has covered, and what its audit could not check."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.audit.losses import broadly_explained, unexplained_preemptions
from tests.chaos.audit.storage import unjudged
from tests.chaos.audit.user_calls import undecided
from tests.chaos.audit.user_stops import undecided_stops
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.faults.schedule import Target
from tests.chaos.run import had_artifacts_away

DECISIONS = ("continue", "stop", "pause", "promote", "exploit")


def covered(snapshot: Snapshot) -> Iterator[str]:
    kinds = Counter(experiment.name.rpartition("-")[0] for experiment in snapshot.experiments)
    yield f"experiments       {_counted(kinds)}"
    yield f"decisions         {_counted(_decisions(snapshot)) or 'none'}"
    calls = Counter(call.what for call in snapshot.calls if call.accepted)
    yield f"calls of a user   {_counted(calls) or 'none'}"


def unchecked(snapshot: Snapshot) -> Iterator[str]:
    """A line for each thing about which this run's audit says nothing."""
    if not snapshot.record.ended:
        yield "the experiments still ran: nothing was checked but their ends"
    never_hit = sorted({*Target} - {fault.planned.target for fault in snapshot.record.faults})
    if never_hit:
        yield f"faults in {', '.join(never_hit)}: there was none"
    made = _decisions(snapshot)
    never_made = [name for name in DECISIONS if not made[name]]
    if never_made:
        yield f"decisions to {', '.join(never_made)}: there was none"
    if not had_artifacts_away(snapshot.record):
        yield "the charts in MLflow"
    yield from _of_calls(snapshot)
    yield from _of_attempts(snapshot)


def _of_calls(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.calls:
        yield "calls of a user: there was none"
    given_up = sum(call.status is None for call in snapshot.calls)
    if given_up:
        yield f"{given_up} calls that a user gave up without an answer: only that they had no half effect"
    unclear = len(undecided(snapshot.calls))
    if unclear:
        yield f"{unclear} pauses and resumes: an earlier call without an answer may have undone them"
    unheard = undecided_stops(snapshot)
    if unheard:
        yield f"{unheard} stops of trials that completed while their slots may not have reached the service"
    deleted = {call.of for call in snapshot.calls if call.what == "delete" and call.accepted}
    if deleted:
        yield f"the trials of {len(deleted)} experiments, which a user has deleted"


def _of_attempts(snapshot: Snapshot) -> Iterator[str]:
    broadly = broadly_explained(snapshot)
    if broadly:
        yield f"{broadly} lost attempts: a dead cluster or agent, a storage or a cut network explains them"
    gave_way = unexplained_preemptions(snapshot)
    if gave_way:
        yield f"{gave_way} preempted attempts: nothing but their own message says that they gave way to others"
    if any(fault.frozen for fault in snapshot.record.faults):
        yield "work of attempts while their slot or client was frozen or cut off, until it is refused"
    folders = unjudged(snapshot)
    if folders:
        yield f"{folders} trials' old checkpoints on disk: their last attempt saved too few to replace them"


def _decisions(snapshot: Snapshot) -> Counter[str]:
    trials = (trial for experiment in snapshot.experiments for trial in experiment.trials)
    return Counter(str(decision["decision"]) for trial in trials for decision in trial.decisions)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
