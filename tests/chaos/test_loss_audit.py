"""The audit of losses: a lost attempt needs a fault that can have hit it."""

from dataclasses import replace

import pytest

from service.domain.attempt_holders import ASK_HOLDER
from service.stack.http_checks import AGENT_NAME
from tests.chaos.audit import audit
from tests.chaos.audit.losses import losses, unexplained_preemptions
from tests.chaos.evidence.snapshot import Attempt, Event, Snapshot, Trial
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import AWAY, CUT, FROZEN, FULL, GUARDIAN, KILLED, WITH_GUARDIAN, PlannedFault, Target
from tests.chaos.good_run import ID, good_run
from tests.chaos.run import Death
from tests.chaos.tampering import in_events, in_experiment, in_record, in_trial, network_fault, sized
from trainer.wire import Scaling


@pytest.mark.parametrize(("message", "is_explained"), [("its checkpoints cannot be stored", True), (None, False)])
@pytest.mark.parametrize(("target", "variant"), [(Target.STORAGE, AWAY), (Target.DISK, FULL)])
def test_a_storage_that_is_away_or_full_explains_only_what_could_not_be_stored(
    target: Target, variant: str, message: str | None, *, is_explained: bool
) -> None:
    run = good_run()
    away = replace(run.record.faults[0], planned=PlannedFault(5, target, variant, 0, 1), attempt=None)
    run = in_record(faults=[away], restarted={0: away.at + 1})(run)
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], message=message), one.attempts[1]])(run)
    assert (audit(run) == []) is is_explained


SILENT = "no heartbeat from agent 'agent-0' for 20 s"


@pytest.mark.parametrize(
    ("variant", "agent", "message", "is_explained"),
    [
        (CUT, "agent-0", SILENT, True),
        (CUT, "agent-0", "its worker died", False),
        (CUT, "agent-1", SILENT, False),
        (KILLED, "agent-0", SILENT, False),
    ],
)
def test_only_a_cut_of_its_own_network_explains_a_silent_holder(
    variant: str, agent: str, message: str, *, is_explained: bool
) -> None:
    run = in_record(faults=[network_fault(variant, agent)])(good_run())
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], message=message), one.attempts[1]])(run)
    assert (audit(run) == []) is is_explained


@pytest.mark.parametrize(
    ("variant", "holder", "is_explained"),
    [
        (KILLED, AGENT_NAME, True),
        (WITH_GUARDIAN, AGENT_NAME, True),
        (GUARDIAN, AGENT_NAME, False),
        (KILLED, "ask 17", False),
    ],
)
def test_a_killed_up_loses_what_ran_below_it_and_a_killed_guardian_nothing(
    variant: str, holder: str, *, is_explained: bool
) -> None:
    fault = replace(good_run().record.faults[0], planned=PlannedFault(5, Target.UP, variant, 0, 1), attempt=None)
    run = in_record(faults=[fault], restarted={0: fault.at + 1})(good_run())
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], holder=holder), one.attempts[1]])(run)
    assert (audit(run) == []) is is_explained


def test_an_up_that_ended_by_itself_explains_what_ran_below_it() -> None:
    death = Death(good_run().record.faults[0].at, "up", Target.UP)
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], holder=AGENT_NAME), one.attempts[1]])(good_run())
    assert audit(in_record(faults=[], deaths=[death])(run)) == []


@pytest.mark.parametrize(
    ("variant", "seconds", "began", "is_explained"),
    [
        (KILLED, 0.1, False, True),
        (KILLED, 0.1, True, False),
        (KILLED, 5.0, False, False),
        (KILLED, -0.1, True, True),
        (FROZEN, 0.1, False, False),
    ],
)
def test_a_slot_that_was_killed_while_it_asked_for_its_next_attempt_explains_the_loss_of_that(
    variant: str, seconds: float, *, began: bool, is_explained: bool
) -> None:
    run = good_run()
    (experiment,) = run.experiments
    lost = experiment.trials[0].attempts[0]
    planned = PlannedFault(5, Target.SLOT, variant, 0, 1)
    slot = replace(run.record.faults[0], planned=planned, at=lost.started_at - seconds, attempt=None)
    if not began:
        first = (experiment.id, 0, 1)
        run = replace(run, lines=[one for one in run.lines if (one.experiment_id, one.trial, one.attempt) != first])
    found = [one for one in audit(in_record(faults=[slot])(run)) if "was lost though nothing" in one]
    assert (found == []) is is_explained


@pytest.mark.parametrize(
    ("target", "unfrozen", "is_explained"),
    [(Target.SERVICE, -1.0, True), (Target.SERVICE, -5.0, False), (Target.CLIENT, -1.0, False)],
)
def test_a_service_that_was_frozen_may_answer_a_slot_that_was_killed_meanwhile(
    target: Target, unfrozen: float, *, is_explained: bool
) -> None:
    """`unfrozen`: in seconds after the attempt's start. The slot was killed 10 s before it."""
    run = good_run()
    (experiment,) = run.experiments
    began, first = experiment.trials[0].attempts[0].started_at, (experiment.id, 0, 1)
    frozen = Fault(PlannedFault(5, target, FROZEN, 0, 30), began - 30, "service-0", 17, frozen_pids=(17,))
    slot = Fault(PlannedFault(6, Target.SLOT, KILLED, 0, 1), began - 10, "a slot", 18)
    run = replace(run, lines=[one for one in run.lines if (one.experiment_id, one.trial, one.attempt) != first])
    run = in_record(faults=[frozen, slot], restarted={0: began + unfrozen})(run)
    found = [one for one in audit(run) if "was lost though nothing" in one]
    assert (found == []) is is_explained


RESIZED = "the elastic group is resized from 2 to 1 worker; the trial continues from its checkpoint"


@pytest.mark.parametrize(
    ("message", "own_size", "is_explained"),
    [
        (RESIZED, 2, True),
        (RESIZED, None, True),
        (RESIZED, 1, False),
        (RESIZED.replace("from 2", "from 1"), None, False),
        ("a node of the elastic group has left: its worker died", 2, False),
        (None, 2, False),
    ],
)
def test_only_a_resize_of_its_elastic_group_needs_no_fault(
    message: str | None, own_size: int | None, *, is_explained: bool
) -> None:
    run = _preempted(message, {} if own_size is None else {1: own_size})
    assert any("was preempted though nothing" in one for one in _losses(run))
    assert (_losses(_elastic(run)) == []) is is_explained


@pytest.mark.parametrize(("following", "count"), [(1, 0), (2, 1), (None, 1)])
def test_a_resize_after_which_the_group_has_its_size_is_not_checked(following: int | None, count: int) -> None:
    run = _elastic(_preempted(RESIZED, {1: 2} | ({} if following is None else {2: following})))
    assert unexplained_preemptions(run) == count


def test_room_that_was_taken_meanwhile_needs_no_fault_and_is_not_checked() -> None:
    run = _preempted("the resources of 2 workers did not become free in time; nothing was started", {})
    assert _losses(run) == []
    assert unexplained_preemptions(run) == 1


def _losses(run: Snapshot) -> list[str]:
    return list(losses(run))


def _preempted(message: str | None, sizes: dict[int, int]) -> Snapshot:
    """The first attempt was preempted, and there was no fault; `sizes` are the world sizes by the attempt's number."""

    def attempts(trial: Trial) -> list[Attempt]:
        return [replace(trial.attempts[0], kind="preempted", message=message), trial.attempts[1]]

    def with_sizes(events: list[Event]) -> list[Event]:
        told = [replace(sized(events[-1], "t-0"), data={"attempt": one, "world_size": sizes[one]}) for one in sizes]
        return [*events, *told]

    return in_events(with_sizes)(in_record(faults=[])(in_trial(0, attempts=attempts)(good_run())))


def _elastic(run: Snapshot) -> Snapshot:
    scaling = {"scaling": Scaling.model_validate({"num_workers": [1, 2]}).model_dump(mode="json")}
    return in_experiment(spec=lambda one: {**one.spec, "trainer": {**one.spec["trainer"], **scaling}})(run)


CALLER = f"{ASK_HOLDER}17"


@pytest.mark.parametrize(("holder", "is_explained"), [("agent-0", True), (CALLER, False)])
def test_a_killed_cluster_explains_only_what_ran_on_it(holder: str, *, is_explained: bool) -> None:
    ray = _fault(Target.RAY, "ray", 0)
    assert (_losses(_held_by(holder, began=True, fault=ray)) == []) is is_explained


@pytest.mark.parametrize(
    ("target", "name", "holder", "is_explained"),
    [
        (Target.AGENT, "agent-0", "agent-0", True),
        (Target.AGENT, "agent-1", "agent-0", False),
        (Target.AGENT, "agent-0", CALLER, False),
        (Target.CLIENT, "client-0", "agent-0", False),
        (Target.CLIENT, "client-0", CALLER, True),
        (Target.RAY, "ray", "agent-0", True),
        (Target.RAY, "ray", CALLER, False),
    ],
)
@pytest.mark.parametrize("seconds", [-1.0, 0.1])
def test_only_the_death_of_its_own_holder_explains_an_attempt_that_had_not_begun(
    target: Target, name: str, holder: str, seconds: float, *, is_explained: bool
) -> None:
    """`seconds` after the attempt's start."""
    run = _held_by(holder, began=False, fault=_fault(target, name, seconds))
    assert (_losses(run) == []) is is_explained


@pytest.mark.parametrize(("target", "holder"), [(Target.CLIENT, "agent-0"), (Target.SLOT, CALLER)])
def test_a_fault_in_what_never_runs_such_an_attempt_explains_no_loss(target: Target, holder: str) -> None:
    for began in (True, False):
        run = _held_by(holder, began=began, fault=_fault(target, "other", 0.1))
        assert any("was lost though nothing" in one for one in _losses(run))


@pytest.mark.parametrize(("name", "is_explained"), [("agent-0", True), ("agent-1", False)])
def test_an_agent_that_ended_by_itself_explains_only_its_own_attempts(name: str, *, is_explained: bool) -> None:
    run = _held_by("agent-0", began=False, fault=None)
    death = Death(run.experiments[0].trials[0].attempts[0].started_at + 0.1, name, Target.AGENT)
    assert (_losses(in_record(deaths=[death])(run)) == []) is is_explained


def _fault(target: Target, name: str, seconds: float) -> Fault:
    """A kill, in seconds after the start of the first attempt."""
    started_at = good_run().experiments[0].trials[0].attempts[0].started_at
    return Fault(PlannedFault(5, target, KILLED, 0, 1), started_at + seconds, name, 17)


def _held_by(holder: str, *, began: bool, fault: Fault | None) -> Snapshot:
    """The first attempt, which was lost, had this holder, and had begun or not."""
    run = in_record(faults=[fault] if fault else [])(good_run())
    run = in_trial(0, attempts=lambda one: [replace(one.attempts[0], holder=holder), one.attempts[1]])(run)
    lines = run.lines if began else [one for one in run.lines if (one.trial, one.attempt) != (0, 1)]
    return replace(run, lines=lines)


@pytest.mark.parametrize("target", [Target.SERVICE, Target.AGENT, Target.CLOCK, Target.CLIENT])
def test_what_is_frozen_or_stepped_explains_no_loss_of_a_slot(target: Target) -> None:
    fault = replace(good_run().record.faults[0], planned=PlannedFault(5, target, "frozen", 0, 1), attempt=(ID, 1, 1))
    assert any("nothing that ran it was killed" in one for one in audit(in_record(faults=[fault])(good_run())))
