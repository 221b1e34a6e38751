"""The maps of moves."""

from service.domain.end_reasons import ENDS_THAT_LET_TRIALS_RUN, EXPERIMENT_REVIVALS, STATUS_AFTER_END, EndReason
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
