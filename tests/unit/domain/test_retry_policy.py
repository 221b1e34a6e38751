"""Which failures are retried."""

from datetime import UTC, datetime, timedelta

from service.domain.retry_policy import (
    MAX_LOSSES,
    MAX_LOST_STARTS,
    MAX_MISSES,
    MIN_LOST_START_INTERVAL,
    counted_failures,
    may_retry,
)
from trainer.wire import Failure, FailureKind


def test_failures_are_retried_on_their_own_budget() -> None:
    user, lost, preempted = (a_failure(kind) for kind in ("user_error", "lost", "preempted"))
    assert not may_retry(user, [], max_retries=0)
    assert may_retry(user, [lost, preempted], max_retries=1)
    assert not may_retry(user, [user], max_retries=1)
    assert may_retry(lost, [user, user], max_retries=0)
    assert not may_retry(lost, [lost] * MAX_LOSSES, max_retries=9)
    assert may_retry(preempted, [preempted] * 1000, max_retries=0)
    for kind in ("cannot_start", "out_of_memory", "silent", "diverged"):
        assert not may_retry(a_failure(kind), [], max_retries=9)


def test_lost_starts_have_a_limited_budget_of_their_own() -> None:
    lost_start, lost = a_failure("lost", began=False), a_failure("lost")
    assert may_retry(lost_start, [lost] * MAX_LOSSES, max_retries=0)
    assert may_retry(lost, [lost_start] * MAX_LOST_STARTS, max_retries=0)
    assert not may_retry(lost_start, [lost_start] * MAX_LOST_STARTS, max_retries=0)


def test_attempts_that_miss_their_checkpoint_have_a_limited_budget_of_their_own() -> None:
    miss, lost = a_failure("lost", is_checkpoint_missing=True), a_failure("lost")
    assert may_retry(miss, [lost] * MAX_LOSSES, max_retries=0)
    assert may_retry(lost, [miss] * MAX_MISSES, max_retries=0)
    assert not may_retry(miss, [miss] * MAX_MISSES, max_retries=0)
    never_began = a_failure("lost", began=False, is_checkpoint_missing=True)
    assert may_retry(never_began, [miss] * MAX_MISSES, max_retries=0)


def test_only_lost_starts_that_are_apart_count_so_a_ray_head_may_be_away_for_a_minute() -> None:
    lost_start, lost, now = a_failure("lost", began=False), a_failure("lost"), datetime(2026, 11, 1, tzinfo=UTC)
    often = [(lost_start, now - timedelta(seconds=seconds)) for seconds in range(60, 0, -1)]
    assert len(counted_failures(often, now)) == 6
    assert may_retry(lost_start, counted_failures(often, now), max_retries=0)
    assert counted_failures([(lost, now)] * 3, now) == [lost] * 3
    long = [(lost_start, now - MIN_LOST_START_INTERVAL * count) for count in range(MAX_LOST_STARTS, 0, -1)]
    assert not may_retry(lost_start, counted_failures(long, now), max_retries=0)


def a_failure(kind: str, *, began: bool = True, is_checkpoint_missing: bool = False) -> Failure:
    return Failure(kind=FailureKind(kind), message=kind, began=began, is_checkpoint_missing=is_checkpoint_missing)
