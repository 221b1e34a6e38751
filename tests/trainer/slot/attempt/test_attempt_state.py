"""The moves of an attempt's state, one by one, in any order, and from several threads. Needs no Ray."""

import threading
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainer.slot.attempt.attempt_state import (
    MOVES,
    Abandoned,
    AttemptState,
    Draining,
    EndingNow,
    Killed,
    LeaseLost,
    Preempted,
    Refused,
    Resizing,
    Running,
    State,
    Stopping,
    Stuck,
)
from trainer.worker.failures import Failure

FAILURE = Failure("user_error", "refused")
ORDERS: list[State] = [
    Stopping("the user"),
    Draining(),
    Resizing(2),
    Killed(),
    Refused(FAILURE),
    Stuck(FAILURE),
    Preempted(),
    LeaseLost(),
]
STATES: list[State] = [Running(), *ORDERS, Abandoned(FAILURE)]
WAIT_SECONDS = 240


def nothing() -> None:
    pass


def in_state(state: State, end_workers: Callable[[], None] = nothing) -> AttemptState:
    """An attempt in this state, each of which can be reached by one order."""
    found = AttemptState(end_workers)
    if isinstance(state, Abandoned):
        found.abandon(state.failure)
    elif not isinstance(state, Running):
        assert found.move(state)
    return found


@pytest.mark.parametrize(("before", "to"), list(product(STATES, ORDERS)), ids=lambda state: type(state).__name__)
def test_an_order_moves_the_state_where_the_map_allows_it_and_changes_nothing_elsewhere(
    before: State, to: State
) -> None:
    ended: list[int] = []
    state = in_state(before, lambda: ended.append(1))
    ended.clear()
    is_allowed = type(to) in MOVES[type(before)]
    assert state.move(to) == is_allowed
    assert state.current == (to if is_allowed else before)
    assert len(ended) == (is_allowed and isinstance(to, EndingNow))


def test_the_map_has_every_state_and_nothing_returns_to_running() -> None:
    assert set(MOVES) == {type(state) for state in STATES}
    assert not any(Running in targets for targets in MOVES.values())
    assert MOVES[LeaseLost] == MOVES[Abandoned] == frozenset()


@pytest.mark.parametrize("before", STATES, ids=lambda state: type(state).__name__)
def test_a_concluded_attempt_follows_no_order_and_its_workers_are_left_alone(before: State) -> None:
    ended: list[int] = []
    state = in_state(before, lambda: ended.append(1))
    assert state.conclude() == before
    ended.clear()
    assert not any(state.move(order) for order in ORDERS)
    state.drain()
    state.end_workers()
    assert (state.current, ended) == (before, [])


@pytest.mark.parametrize("before", STATES, ids=lambda state: type(state).__name__)
def test_a_slot_that_fails_may_abandon_a_concluded_attempt_unless_its_lease_is_lost(before: State) -> None:
    state = in_state(before)
    state.conclude()
    assert state.abandon(FAILURE) == (not isinstance(before, LeaseLost | Abandoned))
    assert not state.abandon(FAILURE)


def test_an_order_that_arrives_after_the_attempt_was_abandoned_changes_nothing() -> None:
    state = in_state(Running())
    assert state.abandon(FAILURE)
    assert not any(state.move(order) for order in ORDERS)
    assert state.conclude() == Abandoned(FAILURE)


def test_a_kill_does_not_hide_why_a_report_was_refused() -> None:
    state = in_state(Refused(FAILURE))
    assert not state.move(Killed())
    assert state.conclude() == Refused(FAILURE)


def test_the_end_of_a_drain_gives_the_attempt_back_unless_it_was_asked_to_stop_before() -> None:
    drained, stopping = in_state(Running()), in_state(Stopping())
    assert drained.drain() == Preempted()
    assert stopping.drain() == Killed()
    assert drained.is_drained
    assert stopping.is_drained
    assert stopping.current == Stopping()


def test_the_lease_is_lost_while_another_thread_ends_the_workers() -> None:
    """Both orders are followed, one after the other, and the attempt concludes only after the workers have ended."""
    is_ending, go_on = threading.Event(), threading.Event()

    def end_workers() -> None:
        is_ending.set()
        assert go_on.wait(WAIT_SECONDS)

    state = AttemptState(end_workers)
    concluded: list[State] = []

    def lose_and_conclude() -> None:
        state.move(LeaseLost())
        concluded.append(state.conclude())

    kill = threading.Thread(target=state.move, args=(Killed(),))
    kill.start()
    assert is_ending.wait(WAIT_SECONDS)
    lose = threading.Thread(target=lose_and_conclude)
    lose.start()
    lose.join(0.1)
    assert lose.is_alive(), "it has to wait for the kill"
    assert concluded == []
    go_on.set()
    for thread in (kill, lose):
        thread.join(WAIT_SECONDS)
    assert concluded == [LeaseLost()]


def test_of_many_orders_at_once_a_lost_lease_is_the_last() -> None:
    state = AttemptState(nothing)
    start = threading.Barrier(len(ORDERS))

    def follow(order: State) -> None:
        start.wait(WAIT_SECONDS)
        state.move(order)

    threads = [threading.Thread(target=follow, args=(order,)) for order in ORDERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert state.conclude() == LeaseLost()


class AnyOrder(RuleBasedStateMachine):
    """Orders, drains, the conclusion and the slot's failure in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_count = 0
        self.state = AttemptState(self._end_workers)
        self.before: State = Running()

    def _end_workers(self) -> None:
        assert not self.state.is_concluded, "these may be the next attempt's workers"
        self.ended_count += 1

    @rule(order=st.sampled_from(ORDERS))
    def order(self, order: State) -> None:
        count = self.ended_count
        moved = self.state.move(order)
        assert self.ended_count - count == (moved and isinstance(order, EndingNow))

    @rule()
    def drain(self) -> None:
        self.state.drain()
        assert self.state.is_drained

    @rule()
    def end_workers(self) -> None:
        self.state.end_workers()

    @rule()
    def conclude(self) -> None:
        assert self.state.conclude() == self.state.current

    @precondition(lambda self: self.state.is_concluded)
    @rule()
    def slot_fails(self) -> None:
        self.state.abandon(FAILURE)

    @invariant()
    def moves_are_allowed(self) -> None:
        now = self.state.current
        assert now == self.before or type(now) in MOVES[type(self.before)]
        self.before = now

    @invariant()
    def no_worker_trains_on_once_it_is_ending(self) -> None:
        if self.state.is_ending_now and not isinstance(self.state.current, Abandoned):
            assert self.ended_count


TestAnyOrder = AnyOrder.TestCase
