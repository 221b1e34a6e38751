"""The maps of moves, and which failures are retried."""

from datetime import UTC, datetime, timedelta

from service.domain.end_reasons import ENDS_THAT_LET_TRIALS_RUN, EXPERIMENT_REVIVALS, STATUS_AFTER_END, EndReason
from service.domain.retry_policy import (
    MAX_LOSSES,
    MAX_LOST_STARTS,
    MAX_MISSES,
    MIN_LOST_START_INTERVAL,
    GiveUp,
    Retry,
    counted_failures,
    decide_retry,
)
from service.domain.statuses import (
    EXPERIMENT_MOVES,
    LIVE_EXPERIMENT,
    LIVE_TRIAL,
    STATUS_AFTER_STOP,
    TRIAL_MOVES,
    TRIAL_REVIVALS,
    ExperimentStatus,
    StopCause,
    TrialStatus,
)
from trainer.wire import Failure, FailureKind


def test_every_status_has_its_moves_and_every_reason_its_end() -> None:
    assert set(EXPERIMENT_MOVES) == set(ExperimentStatus)
    assert set(TRIAL_MOVES) == set(TrialStatus)
    assert set(STATUS_AFTER_END) == set(EndReason)
    assert set(STATUS_AFTER_STOP) == set(StopCause)


def test_final_statuses_have_no_moves() -> None:
    assert not LIVE_EXPERIMENT & set(STATUS_AFTER_END.values())
    assert {cause for cause, status in STATUS_AFTER_STOP.items() if status in LIVE_TRIAL} == {StopCause.PAUSED}


def test_revivals_lead_only_from_final_to_live_statuses() -> None:
    assert not LIVE_TRIAL & set(TRIAL_REVIVALS)
    assert all(targets <= LIVE_TRIAL for targets in TRIAL_REVIVALS.values())
    assert not {EndReason.USER, EndReason.CANNOT_START, *ENDS_THAT_LET_TRIALS_RUN} & EXPERIMENT_REVIVALS


def test_failures_are_retried_on_their_own_budget() -> None:
    user, lost, preempted = (a_failure(kind) for kind in ("user_error", "lost", "preempted"))
    assert isinstance(decide_retry(user, [], max_retries=0), GiveUp)
    assert isinstance(decide_retry(user, [lost, preempted], max_retries=1), Retry)
    assert isinstance(decide_retry(user, [user], max_retries=1), GiveUp)
    assert isinstance(decide_retry(lost, [user, user], max_retries=0), Retry)
    assert isinstance(decide_retry(lost, [lost] * MAX_LOSSES, max_retries=9), GiveUp)
    assert isinstance(decide_retry(preempted, [preempted] * 1000, max_retries=0), Retry)
    for kind in ("cannot_start", "out_of_memory", "silent", "diverged"):
        assert isinstance(decide_retry(a_failure(kind), [], max_retries=9), GiveUp)


def test_lost_starts_have_a_limited_budget_of_their_own() -> None:
    lost_start, lost = a_failure("lost", began=False), a_failure("lost")
    assert isinstance(decide_retry(lost_start, [lost] * MAX_LOSSES, max_retries=0), Retry)
    assert isinstance(decide_retry(lost, [lost_start] * MAX_LOST_STARTS, max_retries=0), Retry)
    assert isinstance(decide_retry(lost_start, [lost_start] * MAX_LOST_STARTS, max_retries=0), GiveUp)


def test_attempts_that_miss_their_checkpoint_have_a_limited_budget_of_their_own() -> None:
    miss, lost = a_failure("lost", is_checkpoint_missing=True), a_failure("lost")
    assert isinstance(decide_retry(miss, [lost] * MAX_LOSSES, max_retries=0), Retry)
    assert isinstance(decide_retry(lost, [miss] * MAX_MISSES, max_retries=0), Retry)
    assert isinstance(decide_retry(miss, [miss] * MAX_MISSES, max_retries=0), GiveUp)
    never_began = a_failure("lost", began=False, is_checkpoint_missing=True)
    assert isinstance(decide_retry(never_began, [miss] * MAX_MISSES, max_retries=0), Retry)


def test_only_lost_starts_that_are_apart_count_so_a_ray_head_may_be_away_for_a_minute() -> None:
    lost_start, lost, now = a_failure("lost", began=False), a_failure("lost"), datetime(2026, 11, 1, tzinfo=UTC)
    often = [(lost_start, now - timedelta(seconds=seconds)) for seconds in range(60, 0, -1)]
    assert len(counted_failures(often, now)) == 6
    assert isinstance(decide_retry(lost_start, counted_failures(often, now), max_retries=0), Retry)
    assert counted_failures([(lost, now)] * 3, now) == [lost] * 3
    long = [(lost_start, now - MIN_LOST_START_INTERVAL * count) for count in range(MAX_LOST_STARTS, 0, -1)]
    assert isinstance(decide_retry(lost_start, counted_failures(long, now), max_retries=0), GiveUp)


def a_failure(kind: str, *, began: bool = True, is_checkpoint_missing: bool = False) -> Failure:
    return Failure(kind=FailureKind(kind), message=kind, began=began, is_checkpoint_missing=is_checkpoint_missing)
