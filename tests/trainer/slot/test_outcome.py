"""How an attempt ended, by its last state and by what its ranks and Ray have reported."""

import pytest

from trainer.slot.attempt_state import Abandoned, Draining, Killed, Preempted, Refused, Running, State, Stopping
from trainer.slot.outcome import AGENT_SHUT_DOWN, End, Outcome, outcome_of
from trainer.slot.ranks import Ranks
from trainer.wire import Finish
from trainer.worker.failures import LOST, OUT_OF_MEMORY, PREEMPTED, USER_ERROR, Failure
from trainer.worker.messages import WorkerEnded, WorkerStarted

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray

STARTED = WorkerStarted(
    actor=None, node="n", pid=1, placement_group=None, log_positions={}, oom_counter="counter", oom_kills=1
)
GOOD, STOPPED = WorkerEnded(), WorkerEnded(has_stopped=True)
BAD = WorkerEnded(failure=Failure(USER_ERROR, "ValueError", "Traceback"))
REFUSAL = Failure(USER_ERROR, "the service refused a report: no")
RAYS = RuntimeError("ray")


def ranks(*ended: WorkerEnded | None) -> Ranks:
    """A group of which each rank has started, and ended unless it is None."""
    found = Ranks(len(ended))
    for rank, end in enumerate(ended):
        found.add_started(rank, STARTED)
        if end is not None:
            found.add_ended(rank, end)
    return found


def ended(
    state: State, group: Ranks, *, error: BaseException | None = None, is_drained: bool = False, means: str = LOST
) -> Outcome:
    outcome = outcome_of(End(state, group, is_drained, error, lambda _error: Failure(means, "Ray says so")))
    Finish.model_validate(outcome.to_json())
    return outcome


def test_ranks_that_return_complete_it_and_those_that_leave_at_a_report_stop_it() -> None:
    assert ended(Running(), ranks(GOOD, GOOD)).status == "completed"
    assert ended(Running(), ranks(STOPPED, STOPPED)).status == "stopped"
    assert ended(Stopping(), ranks(STOPPED, GOOD)).status == "stopped"
    assert ended(Stopping(), ranks(GOOD, GOOD)).status == "completed", "it was quicker"


def test_a_kill_is_a_stop_whatever_the_ranks_and_ray_say() -> None:
    assert ended(Killed(), ranks(BAD, None), error=RAYS).status == "stopped"


@pytest.mark.parametrize("state", [Refused(REFUSAL), Abandoned(REFUSAL)])
def test_a_refused_report_and_a_failed_slot_say_why_whatever_the_ranks_did(state: State) -> None:
    assert ended(state, ranks(STOPPED, GOOD)) == Outcome.failed(REFUSAL, began=True)


def test_an_attempt_that_is_given_back_names_the_node_or_the_agent_as_the_cause() -> None:
    assert ended(Preempted(), ranks(None)).failure == Failure(PREEMPTED, AGENT_SHUT_DOWN)
    was_ended = ended(Preempted(), ranks(None), is_drained=True).failure
    left = ended(Draining(), ranks(STOPPED), is_drained=True).failure
    assert was_ended is not None
    assert left is not None
    assert (was_ended.kind, left.kind) == (PREEMPTED, PREEMPTED)
    assert was_ended.message.endswith("the attempt was ended")
    assert left.message.endswith("the attempt left at a report")
    assert ended(Draining(), ranks(GOOD), is_drained=True).status == "completed", "it was quicker"


def test_a_loss_on_a_drained_node_is_a_preemption() -> None:
    lost, drained = (ended(Running(), ranks(None), error=RAYS, is_drained=drained) for drained in (False, True))
    assert (lost.failure and lost.failure.kind, drained.failure and drained.failure.kind) == (LOST, PREEMPTED)


def test_the_first_failed_rank_gives_the_failure() -> None:
    group = ranks(None, None)
    group.add_ended(1, BAD)
    group.add_ended(0, WorkerEnded(failure=Failure(USER_ERROR, "later", "another")))
    failure = ended(Running(), group, error=RAYS).failure
    assert failure is not None
    assert (failure.message, failure.traceback) == ("ValueError", "Traceback")
    assert dict(failure.rank_tracebacks) == {0: "another", 1: "Traceback"}


def test_a_rank_that_fails_because_another_died_is_not_a_user_error() -> None:
    group = ranks(BAD, None)
    group.dead = {1}
    lost = ended(Running(), group, error=RAYS).failure
    assert lost is not None
    assert (lost.kind, lost.message) == (LOST, "the worker of rank 1 died; then ValueError")
    memory = ended(Running(), group, error=RAYS, means=OUT_OF_MEMORY).failure
    assert memory is not None
    assert memory.message == "Ray says so"
    group.has_oom_kill = True
    by_kernel = ended(Running(), group, error=RAYS).failure
    assert by_kernel is not None
    assert (by_kernel.kind, by_kernel.traceback) == (OUT_OF_MEMORY, "Traceback")


def test_a_rank_without_a_report_of_its_end_loses_the_attempt() -> None:
    failure = ended(Running(), ranks(GOOD, None)).failure
    assert failure is not None
    assert failure.kind == LOST


def test_an_attempt_lost_before_any_worker_ran_has_not_begun() -> None:
    nothing = ended(Running(), Ranks(1), error=RAYS)
    assert nothing.is_lost_start
    assert nothing.to_json()["error"]["began"] is False
    assert not ended(Running(), ranks(None), error=RAYS).is_lost_start


def test_a_kill_for_memory_counts_if_it_came_after_those_that_the_rank_had_survived() -> None:
    logs: list[tuple[int, int, str]] = []
    for kills, is_killed in ((2, False), (3, True)):
        group = ranks(GOOD, None)
        group.survived_oom_kills(1, 2)
        group.add_log(1, 0, "é", {})
        group.send_unsent(lambda _rank, kills=kills: ("last", kills), lambda *log: logs.append(log))  # type: ignore[misc]
        assert group.has_oom_kill == is_killed
    assert logs == [(1, 2, "last")] * 2


def test_workers_are_reused_only_if_all_have_ended_well() -> None:
    assert ranks(GOOD, STOPPED).why_not_reusable() is None
    assert ranks(GOOD, None).why_not_reusable() == "only 1 of 2 workers reported their end"
    assert ranks(GOOD, BAD).why_not_reusable() == "the training function failed"
    left = WorkerEnded(not_reusable="the training function left threads running: t")
    assert ranks(GOOD, left).why_not_reusable() == left.not_reusable


@pytest.mark.parametrize("message", [GOOD, STOPPED, BAD, WorkerEnded(not_reusable="x")])
def test_a_workers_end_is_the_same_after_its_way_through_ray(message: WorkerEnded) -> None:
    assert WorkerEnded.from_fields(message.to_fields()) == message
    assert WorkerStarted(**STARTED.to_fields()) == STARTED
