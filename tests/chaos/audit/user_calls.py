"""What a user has asked for: an accepted call has had its effect; one without an answer wholly, or not at all.

A try without an answer may have its effect late, when a frozen service continues. Where such a try may have undone the
effect of a later call, nothing can be said of that one: `undecided` counts these.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.chaos.audit.user_stops import moves_of, stops
from tests.chaos.evidence.calls import Call
from tests.chaos.evidence.snapshot import Experiment, Snapshot
from tests.chaos.faults.schedule import Target

OPPOSITE = {"pause": "resume", "resume": "pause"}
STATUS_AFTER = {"pause": "experiment.paused", "resume": "experiment.running"}
RETRIED = "a user retried it"
WORK_ON = {Target.SLOT, Target.NETWORK}


def user_calls(snapshot: Snapshot) -> Iterator[str]:
    calls = snapshot.calls
    for experiment in snapshot.experiments:
        if any(call.of == experiment.id for call in calls):
            for check in (_pauses, _changes, _enqueued, _retries):
                yield from (f"{experiment.name}: {what}" for what in check(experiment, calls))
            yield from (f"{experiment.name}: {what}" for what in stops(experiment, calls, snapshot.record))
    yield from (f"of a deleted experiment, {what} is left" for what in snapshot.undeleted)
    yield from _work_after_deletion(snapshot)


def undecided(calls: Sequence[Call]) -> list[Call]:
    """The accepted pauses and resumes of which the effect cannot be known."""
    return [call for call in calls if call.accepted and call.what in OPPOSITE and _may_be_undone(call, calls)]


def _may_be_undone(call: Call, calls: Sequence[Call]) -> bool:
    before = [one for one in calls if one.what == OPPOSITE[call.what] and one.at < call.at]
    return any(one.maybe_late for one in before)


def _pauses(experiment: Experiment, calls: Sequence[Call]) -> Iterator[str]:
    moves = [event for event in experiment.events if event.kind in STATUS_AFTER.values()]
    starts = [event for event in experiment.events if event.kind == "trial.running"]
    for call in calls:
        if call.what not in OPPOSITE or not call.accepted or _may_be_undone(call, calls):
            continue
        status = next((one.kind for one in reversed(moves) if one.at <= call.answered_at), "experiment.running")
        if status != STATUS_AFTER[call.what]:
            yield f"it was {status} after the answer to {call.what}"
        resumed = min((one.at for one in calls if one.what == "resume" and one.at > call.at), default=float("inf"))
        for event in starts:
            if call.what == "pause" and call.answered_at < event.at < resumed:
                yield f"a trial began at event {event.seq}, though the experiment was paused"


def _changes(experiment: Experiment, calls: Sequence[Call]) -> Iterator[str]:
    """Each change is whole, and made by a call; the spec is what the last one has left."""
    by_turn = {call.sent["body"]["tags"]["turn"]: call for call in calls if call.what == "change"}
    spec = _flat(experiment.events[0].data["spec"])
    made: Counter[str] = Counter()
    changed = [event for event in experiment.events if event.kind == "experiment.changed"]
    for _, group in groupby(changed, key=lambda event: event.at):
        after = {event.data["field"]: event.data["after"] for event in group}
        turn = str(after.get("tags.turn"))
        asked = _flat(by_turn[turn].sent["body"]) if turn in by_turn else {}
        missing = {name: value for name, value in asked.items() if spec[name] != value}
        if after != missing:
            yield f"{after} was changed; the call had asked for {missing}"
        spec |= after
        made[turn] += 1
    for turn, call in by_turn.items():
        if not int(call.accepted) <= made[turn] <= 1 + call.lost_count:
            yield f"the change {turn} was made {made[turn]} times, after {call.lost_count} tries without an answer"
    if spec != _flat(experiment.spec):
        yield f"its spec has {_flat(experiment.spec)}; the changes make it {spec}"


def _flat(document: object) -> dict[str, object]:
    """The fields that the user changes."""
    assert isinstance(document, dict)
    limits = document["limits"]
    fields = {f"limits.{name}": limits[name] for name in ("max_trials", "parallelism")}
    return {**fields, "tags.turn": document["tags"]["turn"]}


def _enqueued(experiment: Experiment, calls: Sequence[Call]) -> Iterator[str]:
    created = [event for event in experiment.events if event.kind == "trial.created"]
    by_user = [event for event in created if event.data["origin"] == "enqueue"]
    known: set[str | None] = set()
    for call in calls:
        if not call.what.startswith("enqueue"):
            continue
        wanted = [one["params"] for one in call.sent["body"]]
        found = [event for event in by_user if event.data["params"] in wanted]
        got = tuple(event.trial for event in found)
        known |= {*got}
        if call.accepted and got != call.created:
            yield f"the configurations {wanted} became the trials {got}; the answer was {call.created}"
        if not call.accepted and len(found) not in {0, len(wanted)}:
            yield f"of the configurations {wanted}, only {len(found)} were enqueued"
        if call.status is not None and not call.accepted and found:
            yield f"the configurations {wanted} were refused ({call.status}), and became the trials {got}"
    if len(known) != len(by_user):
        yield f"{len(by_user)} trials were enqueued; the user had asked for {len(known)} of them"


def _retries(experiment: Experiment, calls: Sequence[Call]) -> Iterator[str]:
    for trial in experiment.trials:
        asked = [call for call in calls if (call.what, call.of) == ("retry", trial.id)]
        done = [one for one in moves_of(experiment, trial.id) if one.data.get("reason") == RETRIED]
        if len(done) > sum(call.status is not None for call in asked) + sum(call.lost_count for call in asked):
            yield f"trial {trial.number} was retried {len(done)} times; the user had asked {len(asked)} times"
        for call in asked:
            if call.accepted and not any(call.at <= event.at <= call.answered_at for event in done):
                yield f"trial {trial.number} was not retried, and the answer was {call.status}"


def _work_after_deletion(snapshot: Snapshot) -> Iterator[str]:
    """A slot that was frozen, or cut off, may work on until the service refuses it."""
    if any(fault.frozen and fault.planned.target in WORK_ON for fault in snapshot.record.faults):
        return
    for call in snapshot.calls:
        late = [line for line in snapshot.lines if line.experiment_id == call.of and line.at > call.answered_at]
        if call.what == "delete" and call.accepted and late:
            yield f"{call.of} worked on after it was deleted: {late[0].did} at step {late[0].step}"
