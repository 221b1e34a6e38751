"""The audit of a user's calls: each effect that is missing, halved or doubled is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.audit.user_calls import undecided, user_calls
from tests.chaos.audit.user_stops import STOP_SECONDS, undecided_stops
from tests.chaos.evidence.calls import Call
from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.snapshot import Event, Experiment, Point, Snapshot, Trial
from tests.chaos.experiments import steered
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import FROZEN, KILLED, PlannedFault, Target
from tests.chaos.run import Record

ID, DELETED, TRIAL = "x-00000000abcd", "x-00000000dddd", "t-0"
CONFIGURATIONS = [{"params": {"x": 0.1, "width": 1}}, {"params": {"x": 0.2, "width": 2}}]
LIMITS = {"max_trials": 101, "parallelism": 2}

Tamper = Callable[[Snapshot], Snapshot]


def steered_run() -> Snapshot:
    """A user has paused, changed, enqueued, resumed, stopped and retried, each within a second; and deleted."""
    spec = dict(steered("steered-0", "/journal", seed=1).spec)
    enqueued = [{"origin": "enqueue", "params": one["params"]} for one in CONFIGURATIONS]
    events = [
        _event(0, "experiment.created", None, {"spec": spec}),
        _event(1, "trial.created", TRIAL, {"origin": "search", "params": {"x": 0.3, "width": 3}}),
        _event(1, "trial.running", TRIAL, {"attempt": 1}),
        _event(10, "experiment.paused", None, {}),
        _event(20, "experiment.changed", None, {"field": "limits.max_trials", "before": 100, "after": 101}),
        _event(20, "experiment.changed", None, {"field": "limits.parallelism", "before": 1, "after": 2}),
        _event(20, "experiment.changed", None, {"field": "tags.turn", "before": "0", "after": "1"}),
        *(_event(30, "trial.created", f"t-{number}", one) for number, one in enumerate(enqueued, start=1)),
        _event(40, "experiment.running", None, {}),
        _event(51, "trial.stopped", TRIAL, {"reason": "a user stopped it"}),
        _event(60, "trial.queued", TRIAL, {"reason": "a user retried it"}),
        _event(61, "trial.running", TRIAL, {"attempt": 2}),
        _event(80, "trial.completed", TRIAL, {}),
    ]
    calls = [
        _call("pause", ID, 10),
        _call("change", ID, 20, body={"limits": LIMITS, "tags": {"turn": "1"}}),
        replace(_call("enqueue", ID, 30, body=CONFIGURATIONS), status=201, created=("t-1", "t-2")),
        replace(_call("enqueue again", ID, 31, body=CONFIGURATIONS), status=201, created=("t-1", "t-2")),
        _call("resume", ID, 40),
        _call("stop", TRIAL, 50),
        _call("retry", TRIAL, 60),
        _call("delete", DELETED, 70),
    ]
    curve = [Point(step, 1 if at < 60 else 2, step, {}, at) for step, at in enumerate((48, 51, 65, 79), start=1)]
    trial = Trial(TRIAL, 0, {}, "completed", "completed", None, [], curve, [], [], [], [])
    experiment = Experiment(
        id=ID,
        name="steered-0",
        spec={**spec, "limits": LIMITS, "tags": {"turn": "1"}},
        expected=steered("steered-0", "/journal", seed=1).expected,
        status="completed",
        end_reason="max_trials",
        event_count=len(events),
        trials=[trial],
        events=[replace(event, seq=number) for number, event in enumerate(events, start=1)],
        shown_events=[],
        mirror_experiments=1,
        parents=[],
        foreign=[],
    )
    return Snapshot([experiment], [], Record(began_at=0), calls=calls)


def _event(at: float, kind: str, trial: str | None, data: dict[str, Any]) -> Event:
    return Event(0, kind, trial, data, at)


def _call(what: str, of: str, at: float, body: Any = None) -> Call:
    return Call(what, of, at - 0.5, at + 0.5, 200, sent={"body": body})


def in_events(change: Callable[[list[Event]], list[Event]]) -> Tamper:
    def tamper(run: Snapshot) -> Snapshot:
        (experiment,) = run.experiments
        return replace(run, experiments=[replace(experiment, events=change(experiment.events))])

    return tamper


def in_call(what: str, **changes: Any) -> Tamper:
    return lambda run: replace(
        run, calls=[replace(call, **changes) if call.what == what else call for call in run.calls]
    )


def without(kind: str, at: float) -> Tamper:
    return in_events(lambda events: [event for event in events if (event.kind, event.at) != (kind, at)])


def with_event(at: float, kind: str, trial: str | None, **data: Any) -> Tamper:
    added = _event(at, kind, trial, data)
    return in_events(lambda events: sorted([*events, added], key=lambda event: event.at))


def with_retry(seconds: float, **changes: Any) -> Tamper:
    """Another accepted retry, so long after the stop."""
    return lambda run: replace(run, calls=[*run.calls, replace(_call("retry", TRIAL, 50 + seconds), **changes)])


def first_of(kind: str) -> Tamper:
    """A run without the last event of a kind that has several."""

    def change(events: list[Event]) -> list[Event]:
        last = max(event.seq for event in events if event.kind == kind)
        return [event for event in events if event.seq != last]

    return in_events(change)


def _late_work(run: Snapshot) -> Snapshot:
    return replace(run, lines=[Line(80, "report", 3, DELETED, 0, 1, 0, 17)])


TAMPERED: dict[str, tuple[Tamper, str]] = {
    "a pause without effect": (without("experiment.paused", 10), "it was experiment.running after the answer to pause"),
    "a resume without effect": (without("experiment.running", 40), "it was experiment.paused after the answer"),
    "a trial begins meanwhile": (with_event(25, "trial.running", "t-1", attempt=1), "though the experiment was paused"),
    "a change without effect": (without("experiment.changed", 20), "was made 0 times"),
    "half a change": (first_of("experiment.changed"), "the call had asked for"),
    "a change twice": (
        with_event(22, "experiment.changed", None, field="tags.turn", before="1", after="1"),
        "was made 2 times",
    ),
    "a spec without the change": (
        lambda run: replace(
            run, experiments=[replace(run.experiments[0], spec=run.experiments[0].events[0].data["spec"])]
        ),
        "the changes make it",
    ),
    "one of two is enqueued": (first_of("trial.created"), "became the trials ('t-1',)"),
    "half of an unanswered call": (
        lambda run: in_call("enqueue", status=None, lost_count=1)(first_of("trial.created")(run)),
        "only 1 were enqueued",
    ),
    "refused, and enqueued": (in_call("enqueue", status=409), "were refused (409)"),
    "enqueued twice": (
        with_event(31, "trial.created", "t-3", origin="enqueue", params=CONFIGURATIONS[0]["params"]),
        "became the trials ('t-1', 't-2', 't-3')",
    ),
    "another answer to the repeated call": (
        in_call("enqueue again", created=("t-7", "t-8")),
        "the answer was ('t-7', 't-8')",
    ),
    "enqueued by nobody": (
        with_event(31, "trial.created", "t-3", origin="enqueue", params={"x": 0.9, "width": 9}),
        "the user had asked for 2 of them",
    ),
    "a stopped trial goes on": (
        with_event(55, "trial.running", TRIAL, attempt=2),
        "again (event 0) after it was stopped",
    ),
    "a stopped trial goes on by an earlier retry": (
        lambda run: with_retry(-10)(with_event(55, "trial.running", TRIAL, attempt=2)(run)),
        "again (event 0) after it was stopped",
    ),
    "a stop without effect": (
        lambda run: without("trial.queued", 60)(without("trial.running", 61)(without("trial.stopped", 51)(run))),
        "trial 0 reported after it was stopped, and is completed (event 14)",
    ),
    "a trial that never stops": (
        lambda run: without("trial.completed", 80)(without("trial.stopped", 51)(run)),
        "trial 0 never ended after it was stopped",
    ),
    "a stop that takes long": (
        lambda run: with_event(51 + STOP_SECONDS, "trial.stopped", TRIAL)(
            without("trial.completed", 80)(without("trial.stopped", 51)(run))
        ),
        "trial 0 ended 60 s after it was stopped",
    ),
    "a retry without effect": (without("trial.queued", 60), "was not retried"),
    "a retry twice": (with_event(62, "trial.queued", TRIAL, reason="a user retried it"), "was retried 2 times"),
    "a deleted one works on": (_late_work, "worked on after it was deleted"),
}


def test_a_run_in_which_every_call_had_its_effect_passes() -> None:
    assert list(user_calls(steered_run())) == []


@pytest.mark.parametrize("what", TAMPERED)
def test_a_call_without_its_effect_is_named(what: str) -> None:
    tamper, words = TAMPERED[what]
    violations = list(user_calls(tamper(steered_run())))
    assert any(words in violation for violation in violations), violations


def test_a_pause_that_a_late_resume_may_have_undone_is_left_undecided() -> None:
    unanswered = replace(_call("resume", ID, 5), status=None, lost_count=1)
    run = without("experiment.paused", 10)(steered_run())
    run = replace(run, calls=[unanswered, *run.calls])
    assert list(user_calls(run)) == []
    assert [call.what for call in undecided(run.calls)] == ["pause"]


def test_a_retry_that_may_come_late_explains_that_a_stopped_trial_goes_on() -> None:
    run = with_event(55, "trial.running", TRIAL, attempt=2)(steered_run())
    assert any("again (event 0)" in one for one in user_calls(run))
    assert list(user_calls(with_retry(-10, status=None, lost_count=1)(run))) == []


def _not_stopped(completed_at: float, last_report_at: float) -> Snapshot:
    """The trial completed after the stop, instead of being stopped and retried."""
    run = steered_run()
    for kind, at in (("trial.stopped", 51), ("trial.queued", 60), ("trial.running", 61), ("trial.completed", 80)):
        run = without(kind, at)(run)
    run = with_event(completed_at, "trial.completed", TRIAL)(run)
    (experiment,) = run.experiments
    trial = replace(experiment.trials[0], curve=[Point(1, 1, 0, {}, last_report_at)])
    calls = [call for call in run.calls if call.what != "retry"]
    return replace(run, calls=calls, experiments=[replace(experiment, trials=[trial])])


def test_a_trial_that_made_its_last_report_before_it_was_stopped_may_complete() -> None:
    assert list(user_calls(_not_stopped(51, last_report_at=50))) == []
    assert list(user_calls(_not_stopped(51, last_report_at=50.7))) != []
    assert list(user_calls(_not_stopped(51 + STOP_SECONDS, last_report_at=50))) != []


@pytest.mark.parametrize(("target", "is_allowed"), [(Target.SERVICE, True), (Target.AGENT, False)])
def test_a_trial_that_cannot_learn_of_its_stop_may_complete_and_is_not_checked(
    target: Target, *, is_allowed: bool
) -> None:
    run = _not_stopped(58, last_report_at=57)
    kill = Fault(PlannedFault(1, target, KILLED, 0, 5), 51, "it", 17)
    run = replace(run, record=replace(run.record, faults=[kill], restarted={0: 56}))
    assert (list(user_calls(run)) == []) is is_allowed
    assert undecided_stops(run) == int(is_allowed)


@pytest.mark.parametrize(("restarted_at", "is_allowed"), [(60, True), (52, False)])
def test_a_stop_may_take_as_much_longer_as_the_service_was_away(restarted_at: float, *, is_allowed: bool) -> None:
    run = _not_stopped(55 + STOP_SECONDS, last_report_at=48)
    kill = Fault(PlannedFault(1, Target.SERVICE, KILLED, 0, 5), 51, "service-0", 17)
    run = replace(run, record=replace(run.record, faults=[kill], restarted={0: restarted_at}))
    assert (list(user_calls(run)) == []) is is_allowed


def test_a_stop_of_a_trial_that_has_ended_needs_no_effect() -> None:
    run = replace(steered_run(), calls=[*steered_run().calls, _call("stop", TRIAL, 90)])
    assert list(user_calls(run)) == []


def test_an_unanswered_call_may_have_had_no_effect() -> None:
    run = steered_run()
    for what in ("enqueue", "enqueue again"):
        run = in_call(what, status=None, lost_count=1, created=())(run)
    run = without("trial.created", 30)(run)
    assert list(user_calls(run)) == []


@pytest.mark.parametrize(("target", "is_allowed"), [(Target.SLOT, True), (Target.NETWORK, True), (Target.AGENT, False)])
def test_only_a_slot_that_was_frozen_or_cut_off_may_work_on_after_the_deletion(
    target: Target, *, is_allowed: bool
) -> None:
    frozen = Fault(PlannedFault(5, target, FROZEN, 0, 0), 65, "it", 17)
    run = _late_work(steered_run())
    assert (list(user_calls(replace(run, record=replace(run.record, faults=[frozen])))) == []) is is_allowed
