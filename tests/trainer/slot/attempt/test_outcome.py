"""How an attempt ended, by its last state and by what its ranks and Ray have reported."""

from typing import Any

import pytest

from trainer.slot.attempt.attempt_state import (
    Abandoned,
    Draining,
    Killed,
    Preempted,
    Refused,
    Resizing,
    Running,
    State,
    Stopping,
)
from trainer.slot.attempt.outcome import AGENT_SHUT_DOWN, AttemptOutcome, End, outcome_of
from trainer.slot.attempt.ranks import Ranks, Remains
from trainer.wire import Finish
from trainer.worker.failures import LOST, OUT_OF_MEMORY, PREEMPTED, USER_ERROR, Failure
from trainer.worker.messages import WorkerEnded, WorkerStarted
from trainer.worker.process_end.exit_code import OwnExit

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
    state: State,
    group: Ranks,
    *,
    error: BaseException | None = None,
    is_drained: bool = False,
    is_elastic: bool = False,
    trained_past_decision: bool = False,
    failed_validation: Failure | None = None,
    means: str = LOST,
) -> AttemptOutcome:
    end = End(
        state,
        group,
        is_drained,
        is_elastic,
        trained_past_decision,
        failed_validation,
        error,
        lambda _error: Failure(means, "Ray says so"),
    )
    outcome = outcome_of(end)
    Finish.model_validate(outcome.to_json())
    return outcome


def test_a_failed_validation_fails_only_what_would_complete() -> None:
    failed = Failure(USER_ERROR, "ValueError: no")
    assert ended(Running(), ranks(GOOD, GOOD), failed_validation=failed).failure == failed
    assert ended(Running(), ranks(STOPPED, STOPPED), failed_validation=failed).status == "stopped"
    assert ended(Running(), ranks(GOOD, GOOD), trained_past_decision=True, failed_validation=failed).failure is None


def test_ranks_that_return_complete_it_and_those_that_leave_at_a_report_stop_it() -> None:
    assert ended(Running(), ranks(GOOD, GOOD)).status == "completed"
    assert ended(Running(), ranks(STOPPED, STOPPED)).status == "stopped"
    assert ended(Stopping(), ranks(STOPPED, GOOD)).status == "stopped"
    assert ended(Stopping(), ranks(GOOD, GOOD)).status == "completed", "it was quicker"


def test_what_the_ranks_did_after_a_decision_that_came_too_late_does_not_matter() -> None:
    assert ended(Running(), ranks(GOOD, GOOD), trained_past_decision=True).status == "stopped"
    assert ended(Running(), ranks(BAD, GOOD), trained_past_decision=True).status == "stopped"


def test_a_kill_is_a_stop_whatever_the_ranks_and_ray_say() -> None:
    assert ended(Killed(), ranks(BAD, None), error=RAYS).status == "stopped"


@pytest.mark.parametrize("state", [Refused(REFUSAL), Abandoned(REFUSAL)])
def test_a_refused_report_and_a_failed_slot_say_why_whatever_the_ranks_did(state: State) -> None:
    assert ended(state, ranks(STOPPED, GOOD)) == AttemptOutcome.failed(REFUSAL, began=True)


def test_an_attempt_that_is_given_back_names_the_node_or_the_agent_as_the_cause() -> None:
    assert ended(Preempted(), ranks(None)).failure == Failure(PREEMPTED, AGENT_SHUT_DOWN)
    was_ended = ended(Preempted(), ranks(None), is_drained=True).failure
    left = ended(Draining(), ranks(STOPPED), is_drained=True).failure
    assert was_ended is not None
    assert left is not None
    assert (was_ended.kind, left.kind) == (PREEMPTED, PREEMPTED)
    assert was_ended.message.endswith("the attempt was ended, to continue elsewhere")
    assert left.message.endswith("the attempt stopped at its next report, to continue elsewhere")
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
    assert (lost.kind, lost.message) == (LOST, "the worker of rank 1 died, after which another failed: ValueError")
    memory = ended(Running(), group, error=RAYS, means=OUT_OF_MEMORY).failure
    assert memory is not None
    assert memory.message == "Ray says so"
    group.has_oom_kill = True
    by_kernel = ended(Running(), group, error=RAYS).failure
    assert by_kernel is not None
    assert (by_kernel.kind, by_kernel.traceback) == (OUT_OF_MEMORY, "Traceback")


def test_a_process_that_ended_itself_is_the_users_error_whatever_it_did_to_the_others() -> None:
    group = ranks(BAD, None)
    group.dead = {1}
    group.take_remains(lambda _rank: ("", 1, OwnExit(3, "train.py:7")), lambda *_log: None)
    failure = ended(Running(), group, error=RAYS).failure
    assert failure is not None
    assert failure.kind == USER_ERROR
    assert failure.message.startswith("the worker process of rank 1 ended itself with exit code 3 (train.py:7)")
    assert dict(failure.rank_tracebacks) == {0: "Traceback"}
    group.has_oom_kill = True
    memory = ended(Running(), group, error=RAYS).failure
    assert memory is not None
    assert memory.kind == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("dead", "kind"), [({0: RAYS}, LOST), ({0: RAYS, 1: RAYS}, LOST), ({1: RAYS}, USER_ERROR), ({}, USER_ERROR)]
)
def test_a_process_that_ends_itself_after_another_was_killed_is_not_the_cause(
    dead: dict[int, Exception], kind: str
) -> None:
    error = RuntimeError("ray")
    vars(error)["worker_failures"] = dead
    group = ranks(None, None, None)
    group.take_remains(lambda rank: ("", 1, OwnExit(3) if rank == 1 else None), lambda *_log: None)
    failure = ended(Running(), group, error=error).failure
    assert failure is not None
    assert failure.kind == kind


def test_a_process_that_ends_itself_after_a_rank_has_failed_is_not_the_cause() -> None:
    group = ranks(BAD, None)
    group.take_remains(lambda _rank: ("", 1, OwnExit(3)), lambda *_log: None)
    failure = ended(Running(), group, error=RAYS).failure
    assert failure is not None
    assert failure.message == "ValueError"


def test_a_rank_without_a_report_of_its_end_loses_the_attempt() -> None:
    failure = ended(Running(), ranks(GOOD, None)).failure
    assert failure is not None
    assert failure.kind == LOST


def test_an_attempt_lost_before_any_worker_ran_has_not_begun() -> None:
    nothing = ended(Running(), Ranks(1), error=RAYS)
    assert nothing.is_lost_start
    assert nothing.to_json()["error"]["began"] is False
    assert not ended(Running(), ranks(None), error=RAYS).is_lost_start


def test_a_rank_that_has_reported_its_end_has_run_although_its_start_is_not_known_yet() -> None:
    group = Ranks(1)
    group.add_ended(0, WorkerEnded(failure=Failure(LOST, "no checkpoint")))
    assert ended(Running(), group) == AttemptOutcome.failed(
        Failure(LOST, "no checkpoint", rank_tracebacks={0: ""}), began=True
    )


def test_an_attempt_that_is_stopped_before_it_was_started_is_stopped_and_its_slot_is_sound() -> None:
    never_started = ended(Stopping(), Ranks(1))
    assert (never_started.status, never_started.is_lost_start) == ("stopped", False)
    assert ended(Stopping(), Ranks(1), error=RAYS).is_lost_start, "Ray has lost it before it could leave"


def test_a_kill_for_memory_counts_if_it_came_after_those_that_the_rank_had_survived() -> None:
    logs: list[tuple[int, int, str]] = []
    for kills, is_killed in ((2, False), (3, True)):
        group = ranks(GOOD, None)
        group.survived_oom_kills(1, 2)
        group.survived_oom_kills(1, 1)  # an earlier message again, as when the connection broke
        group.add_started(1, STARTED)  # again, as when the connection broke
        group.add_log(1, 0, "é", {}, lambda *_log: None)
        group.take_remains(lambda _rank, kills=kills: ("last", kills, None), lambda *log: logs.append(log))  # type: ignore[misc]
        assert group.has_oom_kill == is_killed
    assert logs == [(1, 2, "last")] * 2


def test_output_that_arrives_out_of_order_is_sent_on_in_order() -> None:
    group, sent = Ranks(1), list[tuple[int, int, str]]()
    group.add_log(0, 2, "b", {"file": 3}, lambda *log: sent.append(log))
    group.add_log(0, 3, "c", {"file": 4}, lambda *log: sent.append(log))
    assert (sent, group.log_positions) == ([], {})
    group.add_log(0, 0, "é", {"file": 2}, lambda *log: sent.append(log))
    assert sent == [(0, 0, "é"), (0, 2, "b"), (0, 3, "c")]
    group.add_started(0, STARTED)
    assert group.log_positions == {0: {"file": 4}}, "the start of the rank was late, too"
    assert group.log_offsets == {0: 4}


def test_output_that_arrives_twice_is_sent_once() -> None:
    group, sent = Ranks(1), list[tuple[int, int, str]]()
    for offset, text in ((0, "one"), (0, "one"), (3, "two"), (0, "one"), (6, "three"), (3, "two")):
        group.add_log(0, offset, text, {"file": offset + len(text)}, lambda *log: sent.append(log))
    assert sent == [(0, 0, "one"), (0, 3, "two"), (0, 6, "three")]
    assert group.log_positions == {0: {"file": 11}}
    assert not any(group._early_logs.values())


def test_output_that_arrives_while_the_files_of_a_dead_rank_are_read_is_sent_once() -> None:
    group, sent = ranks(None), list[tuple[int, int, str]]()

    def send(*log: Any) -> None:
        sent.append(log)

    def read(rank: int) -> Remains:
        group.add_log(rank, 3, "late", {"file": 7}, send)
        return "late and last", None, None

    group.add_log(0, 0, "one", {"file": 3}, send)
    group.take_remains(read, send)
    assert sent == [(0, 0, "one"), (0, 3, "late and last")]


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


def test_an_elastic_group_that_leaves_to_be_resized_is_given_back_unless_it_was_done() -> None:
    left = ended(Resizing(4), ranks(STOPPED, STOPPED), is_elastic=True)
    assert left.failure == Failure(
        PREEMPTED, "the elastic group is resized from 2 to 4 workers; the trial continues from its checkpoint"
    )
    assert ended(Resizing(4), ranks(GOOD, GOOD), is_elastic=True).status == "completed", "it was quicker"
    failed = ended(Resizing(4), ranks(BAD, GOOD), is_elastic=True).failure
    assert failed is not None
    assert failed.kind == USER_ERROR


def test_a_node_that_leaves_costs_an_elastic_group_no_budget_but_a_process_that_dies_does() -> None:
    group = ranks(None, GOOD)
    dead = ended(Running(), group, error=RAYS, is_elastic=True).failure
    group.lost_nodes.add("n")
    left, fixed = ended(Running(), group, error=RAYS, is_elastic=True).failure, ended(Running(), group, error=RAYS)
    assert dead is not None
    assert left is not None
    assert fixed.failure is not None
    assert (dead.kind, left.kind, fixed.failure.kind) == (LOST, PREEMPTED, LOST)
    assert left.message == "a node of the elastic group has left: Ray says so"


@pytest.mark.parametrize(("is_elastic", "kind"), [(True, PREEMPTED), (False, LOST)])
def test_ranks_that_fail_because_a_node_has_vanished_are_not_the_users_error(is_elastic: bool, kind: str) -> None:
    """Ray may not know of its death yet when the others have failed, so that no rank counts as dead."""
    group = ranks(BAD, None)
    group.lost_nodes.add("n")
    for error in (None, RAYS):
        failure = ended(Running(), group, error=error, is_elastic=is_elastic).failure
        assert failure is not None
        assert failure.kind == kind
        assert failure.message.endswith("the worker of rank 1 died, after which another failed: ValueError")


def test_a_process_that_aborts_because_a_node_has_vanished_is_not_the_users_error() -> None:
    """As torch does it when NCCL reports an error, or gets no answer."""
    group = ranks(None, None)
    group.take_remains(lambda rank: ("", 1, OwnExit(3) if rank == 0 else None), lambda *_log: None)
    own, group.lost_nodes = ended(Running(), group, error=RAYS).failure, {"n"}
    lost = ended(Running(), group, error=RAYS).failure
    assert own is not None
    assert lost is not None
    assert (own.kind, lost.kind) == (USER_ERROR, LOST)


def test_a_node_that_is_only_late_does_not_hide_the_users_error() -> None:
    group = ranks(BAD, None)
    group.late_nodes.add("n")
    failure = ended(Running(), group, error=RAYS).failure
    assert failure is not None
    assert failure.kind == USER_ERROR
