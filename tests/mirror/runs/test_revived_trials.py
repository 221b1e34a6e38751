"""Trials that run again after their end: MLflow shows the best results of those that have ended since."""

from collections.abc import Callable
from typing import Any

import pytest

from service.background.mirroring import Mirroring
from service.store.sql.database import Database

pytestmark = pytest.mark.slow

LOSS = [{"metric": "loss", "direction": "minimize"}]
TWO = [*LOSS, {"metric": "size", "direction": "minimize"}]


@pytest.fixture(params=[1, 2, 3, 2000])
def most_events(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the mirror's batches."""
    monkeypatch.setattr("service.mirror.batches.event_batches.MAX_EVENTS", request.param)


@pytest.mark.usefixtures("most_events")
@pytest.mark.parametrize("restarts", [False, True])
def test_the_best_result_is_not_that_of_an_end_that_was_taken_back(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, *, restarts: bool
) -> None:
    history = begin_experiment(objectives=LOSS)
    first, second = history.trial(0, lr=0.1), history.trial(1, lr=0.2)
    history.end(first, "stopped", 0.1)
    history.end(second, "stopped", 0.4)
    mirror.catch_up()
    if restarts:
        mirror.loop = Mirroring(database, mirror.client.tracking_uri)

    history.revive(first)
    history.revive(second)
    history.end(first, "completed", 0.8)
    mirror.catch_up()
    parent = mirror.runs(history.name)[history.name]
    assert parent.data.metrics["best_loss"] == 0.8
    history.end(second, "completed", 0.4)
    history.finish("completed", "max_trials")
    mirror.catch_up()

    parent = mirror.runs(history.name)[history.name]
    assert (parent.data.metrics["best_loss"], parent.data.tags["paceline.best_trial"]) == (0.4, "1")


def test_a_batch_that_is_repeated_with_more_events_adds_no_point(
    mirror: Any, begin_experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror is killed after MLflow has taken the batch."""
    history = begin_experiment(objectives=LOSS)
    first, second, third = (history.trial(number, lr=0.1) for number in range(3))
    for trial, value in ((first, 0.1), (second, 0.2), (third, 0.4)):
        history.end(trial, "stopped", value)
    mirror.catch_up()
    for trial in (first, second):
        history.revive(trial)
        with monkeypatch.context() as patch:
            patch.setattr("service.store.mirrors.advance", lambda *_: None)
            mirror.loop.run_once()
        history.run(trial)
    mirror.catch_up()
    parent = mirror.runs(history.name)[history.name]
    assert mirror.curve(parent, "best_loss") == [(1, 0.1), (2, 0.1), (3, 0.1), (3, 0.2), (3, 0.4)]


@pytest.mark.usefixtures("most_events")
def test_a_trial_that_fails_after_its_revival_is_not_the_best_one(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment(objectives=LOSS)
    first, second = history.trial(0, lr=0.1), history.trial(1, lr=0.2)
    history.end(second, "completed", 0.4)
    history.end(first, "stopped", 0.1)
    history.revive(first)
    history.end(first, "failed")
    mirror.catch_up()
    parent = mirror.runs(history.name)[history.name]
    assert (parent.data.metrics["best_loss"], parent.data.tags["paceline.best_trial"]) == (0.4, "1")


@pytest.mark.usefixtures("most_events")
def test_without_any_other_result_no_trial_is_the_best_one(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment(objectives=LOSS)
    only = history.trial(0, lr=0.1)
    history.end(only, "stopped", 0.1)
    mirror.catch_up()
    history.revive(only)
    mirror.catch_up()
    assert mirror.runs(history.name)[history.name].data.tags["paceline.best_trial"] == ""


@pytest.mark.usefixtures("most_events")
def test_the_front_has_no_end_that_was_taken_back(mirror: Any, begin_experiment: Callable[..., Any]) -> None:
    history = begin_experiment(objectives=TWO)
    trials = [history.trial(number, lr=0.1) for number in range(3)]
    history.end(trials[0], "stopped", values=[0.0, 0.0])
    for number in (1, 2):
        history.end(trials[number], "completed", values=[float(number), 3.0 - number])
    mirror.catch_up()
    assert mirror.runs(history.name)[history.name].data.tags["paceline.pareto_front"] == "0"
    history.revive(trials[0])
    history.end(trials[0], "completed", values=[9.0, 9.0])
    mirror.catch_up()
    assert mirror.runs(history.name)[history.name].data.tags["paceline.pareto_front"] == "1, 2"


def test_a_users_tag_does_not_replace_those_by_which_the_mirror_finds_its_runs(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    history = begin_experiment(objectives=LOSS)
    mirror.catch_up()
    before = mirror.runs(history.name)[history.name].data.tags
    for name in ("mlflow.user", "paceline.experiment_id"):
        history.append("experiment.changed", {"field": f"tags.{name}", "before": None, "after": "mine"})
    history.append("experiment.changed", {"field": "tags.team", "before": None, "after": "audio"})
    mirror.catch_up()
    tags = mirror.runs(history.name)[history.name].data.tags
    assert {name: tags[name] for name in ("mlflow.user", "paceline.experiment_id")} == {
        name: before[name] for name in ("mlflow.user", "paceline.experiment_id")
    }
    assert tags["team"] == "audio"
