"""When a slot without work knows that it has no agent."""

from trainer.slot.orphan_check import OrphanCheck

ORPHAN_SECONDS = 30.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def checked(check: OrphanCheck, clock: Clock, *, asked: bool = False) -> bool:
    """A slot's look at it, after the time between two."""
    clock.now += check.interval
    if asked:
        check.asked()
    return check.is_orphaned()


def test_a_slot_whose_agent_asks_is_no_orphan() -> None:
    check = OrphanCheck(ORPHAN_SECONDS, clock := Clock())
    assert not any(checked(check, clock, asked=True) for _ in range(20))


def test_a_slot_is_an_orphan_when_no_agent_has_asked_for_long() -> None:
    check = OrphanCheck(ORPHAN_SECONDS, clock := Clock())
    looks = [checked(check, clock) for _ in range(9)]
    assert check.interval * looks.index(True) == ORPHAN_SECONDS + check.interval


def test_a_slot_that_was_frozen_reads_its_agents_calls_before_it_decides() -> None:
    check = OrphanCheck(ORPHAN_SECONDS, clock := Clock())
    assert not checked(check, clock, asked=True)
    clock.now += 10 * ORPHAN_SECONDS  # frozen
    assert not checked(check, clock)
    assert not checked(check, clock, asked=True)
    assert not checked(check, clock)


def test_a_slot_that_was_frozen_and_has_no_agent_closes_soon() -> None:
    check = OrphanCheck(ORPHAN_SECONDS, clock := Clock())
    clock.now += 10 * ORPHAN_SECONDS
    assert [checked(check, clock) for _ in range(2)] == [False, True]


def test_a_slot_whose_agent_died_during_its_attempt_closes_soon_after_it() -> None:
    check = OrphanCheck(ORPHAN_SECONDS, clock := Clock())
    checked(check, clock, asked=True)
    clock.now += 100 * ORPHAN_SECONDS  # an attempt, without checks
    assert [checked(check, clock) for _ in range(2)] == [False, True]
