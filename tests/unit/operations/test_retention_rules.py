"""What retention removes: a function of what is stored."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.domain.statuses import LIVE_TRIAL, TRIAL_REVIVALS, TrialStatus
from service.operations.checkpoints.retention_rules import (
    RetainedCheckpoint,
    RetainedTrial,
    RetentionRules,
    RetentionVerdict,
    retention_verdicts,
)

STATUSES = st.sampled_from(list(TrialStatus))
VALUES = st.none() | st.integers(-3, 3).map(float)
RULES = st.builds(
    RetentionRules,
    keep=st.integers(1, 3),
    keep_best_trials=st.none() | st.integers(1, 3),
    keep_last=st.booleans(),
    direction=st.sampled_from(["minimize", "maximize"]),
    is_over=st.booleans(),
)


@st.composite
def experiments(draw: Any) -> tuple[list[RetainedTrial], list[RetainedCheckpoint], set[str]]:
    """Trials that resume from their own newest checkpoint, from another trial's, or from none."""
    statuses = draw(st.lists(STATUSES, max_size=8))
    saved = [
        RetainedCheckpoint(
            trial=number,
            step=step,
            attempt=1 + step // 2,
            sequence=step,
            uri=f"/{number}/{step}",
            size=10,
            is_pinned=draw(st.sampled_from([False, False, False, True])),
            agent=draw(st.sampled_from(["here", "here", None])),
            is_best=step == 1,
        )
        for number in range(len(statuses))
        for step in range(draw(st.integers(0, 4)))
    ]
    uris = [one.uri for one in saved]
    trials = [
        RetainedTrial(
            number=number,
            status=status,
            value=draw(VALUES),
            is_on_front=draw(st.sampled_from([False, False, True])),
            has_settled=draw(st.sampled_from([True, True, False])),
            resume_uri=draw(st.sampled_from([None, *uris])),
        )
        for number, status in enumerate(statuses)
    ]
    in_use = set(draw(st.lists(st.sampled_from(uris), max_size=2))) if uris else set()
    return trials, saved, in_use


def removed(verdicts: list[RetentionVerdict]) -> set[RetainedCheckpoint]:
    return {one.checkpoint for one in verdicts if not one.is_kept}


@given(RULES, experiments())
def test_what_a_pin_an_attempt_a_promotion_an_exploit_or_a_retry_needs_is_never_removed(
    rules: RetentionRules, experiment: tuple[list[RetainedTrial], list[RetainedCheckpoint], set[str]]
) -> None:
    trials, saved, in_use = experiment
    verdicts = retention_verdicts(rules, trials, saved, in_use)
    assert [one.checkpoint for one in verdicts] == saved
    assert all(one.why for one in verdicts)
    resumable = set(LIVE_TRIAL) if rules.is_over and not rules.keep_last else {*LIVE_TRIAL, *TRIAL_REVIVALS}
    needed = {trial.resume_uri for trial in trials if trial.status in resumable} | in_use
    for one in removed(verdicts):
        assert not one.is_pinned
        assert one.agent is not None
        assert one.uri not in needed
        assert trials[one.trial].status not in LIVE_TRIAL
        assert trials[one.trial].has_settled


@given(RULES, experiments())
def test_retention_is_idempotent(
    rules: RetentionRules, experiment: tuple[list[RetainedTrial], list[RetainedCheckpoint], set[str]]
) -> None:
    trials, saved, in_use = experiment
    gone = removed(retention_verdicts(rules, trials, saved, in_use))
    left = [one for one in saved if one not in gone]
    assert not removed(retention_verdicts(rules, trials, left, in_use))


@given(RULES, experiments())
def test_the_best_trials_keep_their_newest_checkpoints_and_all_trials_do_without_the_rule(
    rules: RetentionRules, experiment: tuple[list[RetainedTrial], list[RetainedCheckpoint], set[str]]
) -> None:
    trials, saved, in_use = experiment
    gone = removed(retention_verdicts(rules, trials, saved, in_use))
    sign = 1 if rules.direction == "minimize" else -1
    completed = [one for one in trials if one.status is TrialStatus.COMPLETED and one.value is not None]
    ranked = sorted(completed, key=lambda one: (sign * (one.value or 0), one.number))
    wanted = {one.number for one in (ranked if rules.keep_best_trials is None else ranked[: rules.keep_best_trials])}
    for trial in wanted:
        assert not gone.intersection([one for one in saved if one.trial == trial][-rules.keep :])
    if rules.keep_best_trials is None:
        assert all(len([one for one in saved if one.trial == old.trial]) > rules.keep for old in gone)


@given(RULES, experiments(), VALUES)
def test_what_has_been_removed_would_not_be_kept_later(
    rules: RetentionRules,
    experiment: tuple[list[RetainedTrial], list[RetainedCheckpoint], set[str]],
    value: float | None,
) -> None:
    """A further trial completes. So a trial does not come to be among the best after it has lost its checkpoints."""
    trials, saved, in_use = experiment
    before = removed(retention_verdicts(rules, trials, saved, in_use))
    further = RetainedTrial(len(trials), TrialStatus.COMPLETED, value, False, True, None)
    assert before <= removed(retention_verdicts(rules, [*trials, further], saved, in_use))


def test_a_stopped_trial_may_be_among_the_best_but_displaces_none() -> None:
    """It may be retried and end worse: the others must not have lost their checkpoints to it."""
    rules = RetentionRules(keep=1, keep_best_trials=1, keep_last=False, direction="maximize", is_over=True)
    completed = RetainedTrial(0, TrialStatus.COMPLETED, 3.0, is_on_front=False, has_settled=True, resume_uri=None)
    stopped = replace(completed, number=1, status=TrialStatus.STOPPED, value=5.0)
    one = RetainedCheckpoint(0, 1, 1, 1, "/0", 10, is_pinned=False, agent="here")
    saved = [one, replace(one, trial=1, uri="/1")]
    assert not removed(retention_verdicts(rules, [completed, stopped], saved, in_use=[]))
    worse = replace(stopped, value=1.0)
    assert removed(retention_verdicts(rules, [completed, worse], saved, in_use=[])) == {saved[1]}


def test_the_best_checkpoint_of_a_trial_is_kept_beside_its_newest() -> None:
    rules = RetentionRules(keep=1, keep_best_trials=1, keep_last=False, direction="maximize", is_over=True)
    kept = RetainedTrial(0, TrialStatus.COMPLETED, 3.0, is_on_front=False, has_settled=True, resume_uri=None)
    worse = replace(kept, number=1, value=1.0)
    one = RetainedCheckpoint(0, 1, 1, 1, "/0/1", 10, is_pinned=False, agent="here")
    saved = [
        replace(one, trial=trial, step=step, sequence=step, uri=f"/{trial}/{step}", is_best=step == 1)
        for trial in (0, 1)
        for step in (1, 2, 3)
    ]
    gone = removed(retention_verdicts(rules, [kept, worse], saved, in_use=[]))
    assert {one.uri for one in gone} == {"/0/2", "/1/1", "/1/2", "/1/3"}


def test_each_reason_is_given_in_words() -> None:
    rules = RetentionRules(keep=1, keep_best_trials=1, keep_last=True, direction="maximize", is_over=False)
    done = RetainedTrial(0, TrialStatus.COMPLETED, 3.0, is_on_front=False, has_settled=True, resume_uri=None)
    trials = [
        done,
        replace(done, number=1, value=2.0),
        replace(done, number=2, status=TrialStatus.FAILED, value=None, resume_uri="/2"),
        replace(done, number=3, status=TrialStatus.PAUSED, value=None, resume_uri="/1"),
        replace(done, number=4, status=TrialStatus.PRUNED, value=None),
    ]
    one = RetainedCheckpoint(0, 1, 1, 1, "/0", 10, is_pinned=False, agent="here")
    saved = [replace(one, trial=number, uri=f"/{number}") for number in range(5)]
    verdicts = retention_verdicts(rules, trials, saved, in_use=[])
    assert [(one.is_kept, one.why) for one in verdicts] == [
        (True, "trial 0 (completed) is among the best 1"),
        (True, "trial 3 resumes from it"),
        (True, "trial 2 resumes from it if it is retried"),
        (True, "trial 3 is paused"),
        (False, "trial 4 (pruned) is not among the best 1"),
    ]
