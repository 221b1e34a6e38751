"""The maps of moves, checked as data."""

from datetime import UTC, datetime, timedelta

from service.domain.failures import (
    MAX_LOSSES,
    MAX_LOST_STARTS,
    MIN_LOST_START_INTERVAL,
    GiveUp,
    Retry,
    counted_failures,
    decide_retry,
)
from service.domain.statuses import (
    EXPERIMENT_MOVES,
    EXPERIMENT_REVIVALS,
    LIVE_EXPERIMENT,
    LIVE_TRIAL,
    NO_NEW_TRIALS,
    STATUS_AFTER_END,
    STATUS_AFTER_STOP,
    TRIAL_MOVES,
    TRIAL_REVIVALS,
    EndReason,
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


def test_what_has_ended_stays_so() -> None:
    assert not LIVE_EXPERIMENT & set(STATUS_AFTER_END.values())
    assert {cause for cause, status in STATUS_AFTER_STOP.items() if status in LIVE_TRIAL} == {StopCause.PAUSED}


def test_a_users_word_leads_from_an_end_back_into_life_and_nowhere_else() -> None:
    assert not LIVE_TRIAL & set(TRIAL_REVIVALS)
    assert all(targets <= LIVE_TRIAL for targets in TRIAL_REVIVALS.values())
    assert not {EndReason.USER, EndReason.CANNOT_START, *NO_NEW_TRIALS} & EXPERIMENT_REVIVALS


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


def test_what_was_lost_before_it_began_is_not_held_against_the_trial_and_not_tried_for_ever() -> None:
    unbegun, lost = a_failure("lost", began=False), a_failure("lost")
    assert isinstance(decide_retry(unbegun, [lost] * MAX_LOSSES, max_retries=0), Retry)
    assert isinstance(decide_retry(lost, [unbegun] * MAX_LOST_STARTS, max_retries=0), Retry)
    assert isinstance(decide_retry(unbegun, [unbegun] * MAX_LOST_STARTS, max_retries=0), GiveUp)


def test_lost_starts_count_when_they_are_apart_and_a_ray_head_may_be_away_for_a_minute() -> None:
    unbegun, lost, now = a_failure("lost", began=False), a_failure("lost"), datetime(2026, 11, 1, tzinfo=UTC)
    often = [(unbegun, now - timedelta(seconds=seconds)) for seconds in range(60, 0, -1)]
    assert len(counted_failures(often, now)) == 6
    assert isinstance(decide_retry(unbegun, counted_failures(often, now), max_retries=0), Retry)
    assert counted_failures([(lost, now)] * 3, now) == [lost] * 3
    long = [(unbegun, now - MIN_LOST_START_INTERVAL * count) for count in range(MAX_LOST_STARTS, 0, -1)]
    assert isinstance(decide_retry(unbegun, counted_failures(long, now), max_retries=0), GiveUp)


def a_failure(kind: str, *, began: bool = True) -> Failure:
    return Failure(kind=FailureKind(kind), message=kind, began=began)
