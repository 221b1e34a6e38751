"""What a person is told of an experiment's events."""

from typing import Any

import pytest

from service.cli.progress import Progress, Saved, clock, counted, parameters, remaining_seconds


def event(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "data": data}


@pytest.fixture
def progress() -> Progress:
    return Progress(metric="val_accuracy")


def test_endings_become_sentences(progress: Progress) -> None:
    progress.take(event(1, "trial.running", number=0))
    progress.take(event(2, "trial.completed", number=0, step=20, values=[0.98765]))
    progress.take(event(3, "trial.pruned", number=1, step=3, values=[0.1], reason="0.1 is below 0.5"))
    progress.take(event(4, "trial.failed", number=2, step=None, values=None, reason="ValueError: no"))
    assert progress.told() == [
        "trial 0 completed at step 20: val_accuracy 0.98765",
        "trial 1 stopped early: 0.1 is below 0.5",
        "trial 2 failed: ValueError: no",
    ]
    assert progress.told() == []


def test_a_trial_that_comes_back_is_told_but_a_new_one_is_not(progress: Progress) -> None:
    progress.take(event(1, "trial.queued", number=0))
    progress.take(event(2, "trial.running", number=0))
    progress.take(event(3, "trial.queued", number=0, reason="its node is gone"))
    assert progress.told() == ["trial 0 goes back to the queue: its node is gone"]


def test_a_trial_that_waits_counts_as_much_as_one_that_ended_until_it_goes_on(progress: Progress) -> None:
    progress.take(event(1, "trial.running", number=0))
    progress.take(event(2, "trial.paused", number=0, step=1, milestone=1, reason="0.1 is below 0.5; it waits there"))
    assert (progress.finished, counted(progress.statuses.values())) == (1, "1 paused")
    progress.take(event(3, "trial.queued", number=0, reason="0.1 is above 0.05: promoted"))
    assert (progress.finished, counted(progress.statuses.values())) == (0, "1 queued")
    assert progress.told() == [
        "trial 0 waits: 0.1 is below 0.5; it waits there",
        "trial 0 goes on: 0.1 is above 0.05: promoted",
    ]


def test_other_events_only_move_the_cursor(progress: Progress) -> None:
    progress.take(event(7, "report", step=1))
    progress.take(event(8, "experiment.completed", reason="max_trials"))
    assert (progress.seen, progress.told(), progress.finished) == (8, [], 0)


def test_what_early_stopping_saved_is_counted_against_the_longest_completed_trial(progress: Progress) -> None:
    for seq, (status, step) in enumerate(
        [("completed", 20), ("completed", 18), ("pruned", 1), ("pruned", 9), ("failed", 2)]
    ):
        progress.take(event(seq, f"trial.{status}", number=seq, step=step, values=[0.5]))
    assert progress.saved == Saved(trials=2, steps=19 + 11, longest=20)


def test_nothing_is_claimed_to_be_saved_when_no_trial_completed(progress: Progress) -> None:
    progress.take(event(1, "trial.pruned", number=0, step=3, values=[0.5]))
    assert progress.saved.steps == 0


def test_the_time_left_follows_the_pace_so_far() -> None:
    assert remaining_seconds(finished=5, total=20, elapsed_seconds=10) == 30
    assert remaining_seconds(finished=0, total=20, elapsed_seconds=10) is None


def test_times_and_parameters_read_well() -> None:
    assert [clock(5), clock(65), clock(3665)] == ["0:05", "1:05", "1:01:05"]
    assert parameters({"lr": 0.0123456, "layers": 3, "optimizer": "sgd"}) == "lr=0.01235, layers=3, optimizer=sgd"
