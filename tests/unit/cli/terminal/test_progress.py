"""The progress of an experiment, from its events to sentences and numbers."""

from typing import Any

import pytest
from rich.console import Console

from service.cli.terminal.progress import Saved, TrialProgress
from service.cli.terminal.progress_view import (
    clock,
    live_view,
    remaining_seconds,
    status_counts,
    status_line,
    summary,
)


def event(seq: int, kind: str, trial: str | None = None, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "trial": trial, "data": data}


@pytest.fixture
def progress() -> TrialProgress:
    return TrialProgress(metric="val_accuracy")


def test_endings_become_sentences(progress: TrialProgress) -> None:
    progress.add(event(1, "trial.running", number=0))
    progress.add(event(2, "trial.completed", number=0, step=20, values={"val_accuracy": 0.98765}))
    progress.add(event(3, "trial.pruned", number=1, step=3, values={"val_accuracy": 0.1}, reason="0.1 is below 0.5"))
    progress.add(event(4, "trial.failed", number=2, step=None, values={"val_accuracy": None}, reason="ValueError: no"))
    assert progress.pop_sentences() == [
        "trial 0 completed at step 20: val_accuracy 0.98765",
        "trial 1 stopped early: 0.1 is below 0.5",
        "trial 2 failed: ValueError: no",
    ]
    assert progress.pop_sentences() == []


def test_a_completed_trial_is_announced_with_all_values_and_its_broken_constraints(progress: TrialProgress) -> None:
    values, reason = {"val_accuracy": 0.5, "latency": 1234567.8, "size": None}, "infeasible: memory 5 is above 3"
    progress.add(event(1, "trial.completed", number=0, step=2, values=values, feasible=False, reason=reason))
    progress.add(event(2, "trial.completed", number=1, step=2, values=values, feasible=True, reason=None))
    progress.add(event(3, "trial.completed", number=2, step=2, values=values, feasible=False, reason="a time limit"))
    reached = "completed at step 2: val_accuracy 0.5, latency 1234568"
    assert progress.pop_sentences() == [
        f"trial 0 {reached}; {reason}",
        f"trial 1 {reached}",
        f"trial 2 {reached}; infeasible",
    ]


def test_a_requeued_trial_gets_a_sentence_but_a_new_one_does_not(progress: TrialProgress) -> None:
    progress.add(event(1, "trial.queued", number=0))
    progress.add(event(2, "trial.running", number=0))
    progress.add(event(3, "trial.queued", number=0, reason="its node is gone"))
    assert progress.pop_sentences() == ["trial 0 is queued again: its node is gone"]


def test_a_paused_trial_counts_as_finished_until_it_resumes(progress: TrialProgress) -> None:
    progress.add(event(1, "trial.running", number=0))
    progress.add(event(2, "trial.paused", number=0, step=1, milestone=1, reason="0.1 is below 0.5; it waits there"))
    assert (progress.finished, status_counts(progress.statuses.values())) == (1, "1 paused")
    progress.add(event(3, "trial.queued", number=0, reason="0.1 is above 0.05: promoted"))
    assert (progress.finished, status_counts(progress.statuses.values())) == (0, "1 queued")
    assert progress.pop_sentences() == [
        "trial 0 paused: 0.1 is below 0.5; it waits there",
        "trial 0 resumes: 0.1 is above 0.05: promoted",
    ]


def test_confirmations_are_announced_and_their_verdict_is_in_the_summary(progress: TrialProgress) -> None:
    progress.add(event(1, "experiment.confirming", reason="the search has ended", seeds=[1, 2]))
    progress.add(event(2, "experiment.confirmed", verdict="trial 3 leads", ranking=[]))
    assert progress.pop_sentences() == ["the search has ended", "confirmed: trial 3 leads"]
    experiment = {"name": "x", "status": "completed", "spec": {"objectives": [{}]}}
    assert ("confirmed", "trial 3 leads") in summary(experiment, progress)


def test_of_a_long_traceback_the_summary_has_both_ends(progress: TrialProgress) -> None:
    lines = [f"line {number}" for number in range(100)]
    spec: dict[str, Any] = {"objectives": [{}]}
    experiment = {"name": "x", "status": "failed", "spec": spec, "traceback": "\n".join(lines)}
    shown = dict(summary(experiment, progress))["traceback"].splitlines()
    assert shown[:20] == lines[:20]
    assert "60 lines are left out" in shown[20]
    assert shown[21:] == lines[80:]
    assert dict(summary({**experiment, "traceback": "one\ntwo\n"}, progress))["traceback"] == "one\ntwo"


def test_the_choice_of_a_rule_is_announced(progress: TrialProgress) -> None:
    chosen = {"options": {"rule": "hyperband"}, "why": "trial 0 made 9 reports"}
    progress.add(event(1, "experiment.search_chosen", sampler={"name": "tpe", "why": None}, early_stopping=chosen))
    own = chosen | {"why": None}
    progress.add(event(2, "experiment.search_chosen", sampler={"name": "gp", "why": "small"}, early_stopping=own))
    assert progress.pop_sentences() == ["early stopping: hyperband: trial 0 made 9 reports"]


def test_other_events_only_advance_the_cursor(progress: TrialProgress) -> None:
    progress.add(event(7, "report", step=1))
    progress.add(event(8, "experiment.completed", reason="max_trials"))
    assert (progress.last_event, progress.pop_sentences(), progress.finished) == (8, [], 0)


def test_saved_steps_are_counted_against_the_longest_completed_trial(progress: TrialProgress) -> None:
    for seq, (status, step) in enumerate(
        [("completed", 20), ("completed", 18), ("pruned", 1), ("pruned", 9), ("failed", 2)]
    ):
        progress.add(event(seq, f"trial.{status}", number=seq, step=step, values={"val_accuracy": 0.5}))
    assert progress.saved == Saved(trials=2, steps=19 + 11, longest=20)


def test_no_steps_count_as_saved_when_no_trial_completed(progress: TrialProgress) -> None:
    progress.add(event(1, "trial.pruned", number=0, step=3, values={"val_accuracy": 0.5}))
    assert progress.saved.steps == 0


def test_the_remaining_time_follows_the_average_so_far() -> None:
    assert remaining_seconds(finished=5, total=20, elapsed_seconds=10) == 30
    assert remaining_seconds(finished=0, total=20, elapsed_seconds=10) is None


def test_times_are_formatted() -> None:
    assert [clock(5), clock(65), clock(3665)] == ["0:05", "1:05", "1:01:05"]


def shown_live(progress: TrialProgress, metrics: list[str], **limits: float | None) -> str:
    """The live view of an experiment of two trials that is created far in the future."""
    spec = {"objectives": [{"metric": metric} for metric in metrics], "limits": {"max_trials": 2, **limits}}
    experiment = {"name": "x", "status": "running", "spec": spec, "created_at": "2999-01-01T00:00:00Z"}
    console = Console(width=200)
    with console.capture() as shown:
        console.print(live_view(experiment, progress))
    return shown.get()


def test_the_live_view_says_why_there_is_no_best_trial(progress: TrialProgress) -> None:
    assert "best     none yet" in shown_live(progress, ["val_accuracy"])
    front = "best     paceline best x shows the Pareto front of its objectives"
    assert front in shown_live(progress, ["val_accuracy", "latency"])


@pytest.mark.parametrize(
    ("limits", "shown"), [({"max_seconds": 3600.0}, "3 0:00 at most 1:00:00 left"), ({}, "3 0:00")]
)
def test_without_a_number_of_trials_the_time_limit_says_what_is_left(
    progress: TrialProgress, limits: dict[str, float], shown: str
) -> None:
    for number in range(3):
        progress.add(event(number + 1, "trial.completed", number=number, step=1, values={"val_accuracy": 0.5}))
    first = shown_live(progress, ["val_accuracy"], max_trials=None, **limits).splitlines()[0]
    assert first.split(maxsplit=1)[1].lstrip(" ━╺╸").split() == shown.split()
    spec = {"objectives": [{"metric": "val_accuracy"}], "limits": {"max_trials": None} | limits}
    assert status_line({"name": "x", "spec": spec}, progress).startswith("x: 3 trials; 3 completed")


@pytest.mark.parametrize("finished", [1, 3], ids=["fewer than planned", "more than planned"])
def test_no_time_is_negative_although_the_services_clock_is_ahead(finished: int, progress: TrialProgress) -> None:
    for number in range(finished):
        progress.add(event(number + 1, "trial.failed", number=number))
    shown = shown_live(progress, ["val_accuracy"])
    assert shown.partition("\n")[0].split()[-5:] == [f"{finished}/2", "0:00", "about", "0:00", "left"]
