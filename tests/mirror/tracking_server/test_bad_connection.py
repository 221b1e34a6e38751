"""Calls of MLflow fail often, or take too long: the mirror gets to its end, with the same content as otherwise."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from sqlalchemy import delete

from service.background.loop import Loop
from service.background.mirroring import MirrorFailed, Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.store import mirrors
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow, MirrorRunRow
from tests.mirror.bad_connection import (
    BadConnection,
    Call,
    at,
    every,
    failing_often,
    gateway_timeout,
    server_error,
    timeout,
    with_more_metrics_than,
)

pytestmark = pytest.mark.slow
MANY_PASSES = 150


def mirror_in_spite_of_failures(mirror: Any, database: Database) -> None:
    for _ in range(MANY_PASSES):
        try:
            mirror.loop.run_once()
        except (MlflowUnavailable, MirrorFailed):
            continue
        with database.read() as session:
            if mirrors.lag(session) == 0:
                return
    pytest.fail("the mirror makes no progress")


def some_trials(history: Any) -> None:
    """Two at a time; one is paused, one ends again after its first end."""
    for number in range(0, 4, 2):
        trials = [history.trial(number + place, lr=0.1) for place in (0, 1)]
        for trial in trials:
            history.run(trial)
        for step in range(1, 4):
            for trial in trials:
                history.report(trial, step, val_accuracy=step / 10, loss=1 / step)
        history.append("trial.paused", {"number": number, "milestone": 3, "step": 3, "reason": "lower"}, trials[0])
        history.end(trials[1], "completed", 0.5 + number / 100)
        history.append("trial.queued", {"number": number, "reason": "promoted"}, trials[0])
        history.run(trials[0])
        history.end(trials[0], "pruned", 0.4)
    history.revive(trials[1])
    history.run(trials[1])
    history.end(trials[1], "completed", 0.45)
    history.finish("completed", "max_trials")


def content(mirror: Any, name: str) -> dict[str, Any]:
    """What MLflow has of an experiment, without MLflow's ids."""
    return {
        key: (
            (run.info.status, run.info.start_time, run.info.end_time),
            {tag: value for tag, value in run.data.tags.items() if tag != "mlflow.parentRunId"},
            run.data.params,
            run.data.metrics,
            {metric: mirror.curve(run, metric) for metric in run.data.metrics},
        )
        for key, run in mirror.runs(name).items()
    }


@pytest.mark.parametrize("failure", [failing_often(0.45), every(9)], ids=["45-percent-fail", "each-9th-takes-too-long"])
def test_the_content_is_that_of_a_mirror_without_failures(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    database: Database,
    connection: BadConnection,
    failure: Callable[[Call], Exception | None],
) -> None:
    history = begin_experiment()
    some_trials(history)
    connection.failure = failure

    mirror_in_spite_of_failures(mirror, database)

    connection.failure = lambda _: None
    written = content(mirror, history.name)
    assert len(written) == 5
    with database.write() as session:
        session.execute(delete(MirrorRow))
        session.execute(delete(MirrorRunRow))
    mirror.client.delete_experiment(mirror.client.get_experiment_by_name(history.name).experiment_id)
    mirror.catch_up()
    assert written == content(mirror, f"{history.name} ({history.experiment_id})")


@pytest.mark.parametrize("kind", ["timeout", "gateway-timeout", "slow"])
def test_a_report_of_many_metrics_is_written_in_smaller_calls(
    mirror: Any,
    begin_experiment: Callable[..., Any],
    database: Database,
    connection: BadConnection,
    call_seconds: list[float],
    kind: str,
) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.report(trial, 1, **{f"layer_{number}": number for number in range(700)})

    def slow() -> Exception:
        call_seconds.append(5)
        return server_error()

    failure = {"timeout": timeout, "gateway-timeout": gateway_timeout, "slow": slow}[kind]
    connection.failure = with_more_metrics_than(120, failure)

    mirror_in_spite_of_failures(mirror, database)

    connection.failure = lambda _: None
    assert len(mirror.runs(history.name)["trial 00"].data.metrics) == 700


def test_calls_that_are_small_enough_stay_so(
    mirror: Any, begin_experiment: Callable[..., Any], database: Database, connection: BadConnection
) -> None:
    """Larger ones are not tried again after each success: that would cost a timeout each time."""
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    failed: list[str] = []

    def failure() -> Exception:
        failed.append("too many metrics")
        return timeout()

    connection.failure = with_more_metrics_than(120, failure)
    for step in range(8):
        history.report(trial, step, **{f"layer_{number}": number for number in range(700)})
        mirror_in_spite_of_failures(mirror, database)
    assert len(failed) == 3  # 700, 350, 175 metrics


def test_each_file_is_uploaded_though_each_upload_fails_at_first(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, tmp_path: Path
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    run_id = mirror.runs(history.name)[history.name].info.run_id
    files = {"a.txt", "b.txt", "below/c.txt"}
    for name in files:
        file = tmp_path / "files" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(name)
    connection.failure = lambda call: server_error() if connection.calls.count(call.path) < 4 else None

    mirror.loop._connection.client.put_files(run_id, tmp_path / "files", "pictures")

    connection.failure = lambda _: None
    found = [one for folder in ("pictures", "pictures/below") for one in mirror.client.list_artifacts(run_id, folder)]
    assert {one.path for one in found if not one.is_dir} == {f"pictures/{one}" for one in files}


def test_an_error_whose_text_is_no_text_says_that_mlflow_is_unavailable(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    """Errors of requests are OSErrors with whatever arguments."""
    begin_experiment()
    connection.failure = lambda _: requests.ConnectionError("aborted", ValueError("odd"))
    with pytest.raises(MlflowUnavailable, match=r"cannot be used: .*aborted.*odd"):
        mirror.loop.run_once()


def test_a_short_call_that_takes_too_long_says_nothing_about_its_size(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    trial = history.trial(0, lr=0.1)
    connection.failure = at("runs/log-batch", timeout)
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    connection.failure = with_more_metrics_than(800)
    history.run(trial)
    history.report(trial, 1, **{f"layer_{number}": number for number in range(700)})
    mirror.catch_up()
    connection.calls = []
    history.report(trial, 2, **{f"layer_{number}": number for number in range(700)})

    mirror.catch_up()

    assert connection.calls.count("runs/log-batch") == 2  # of the parent and of the trial


def test_after_mlflow_was_away_batches_are_as_large_as_before(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    history.completed_trial(0, 0.5)
    connection.failure = lambda _: server_error()
    for _ in range(12):
        with pytest.raises(MlflowUnavailable):
            mirror.loop.run_once()
    connection.failure = lambda _: None
    assert mirror.loop.run_once() == 4


def test_after_failures_batches_grow_again(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection
) -> None:
    history = begin_experiment()
    mirror.catch_up()
    for number in range(4):
        history.completed_trial(number, 0.5)
    connection.failure = at("runs/log-batch")
    for _ in range(3):
        with pytest.raises(MlflowUnavailable):
            mirror.loop.run_once()
    connection.failure = lambda _: None
    assert [mirror.loop.run_once() for _ in range(4)] == [2, 4, 8, 2]


class Interruption(NamedTuple):
    """Three experiments in the mirror's order, of which MLflow fails at the second."""

    one: Any
    failing: Any
    waiting: Any


@pytest.fixture
def interruption(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, database: Database
) -> Interruption:
    mirror.loop = Mirroring(database, mirror.client.tracking_uri, clock=lambda: 0.0)  # which rests stay in
    histories = [begin_experiment(f"x-00000000000{place}", name=f"{place} of three") for place in "abc"]
    mirror.catch_up()
    for history in histories:
        history.run(history.trial(0, lr=0.1))
    unreachable = mirror.runs("b of three")["b of three"].info.run_id
    connection.failure = lambda call: server_error() if call.body.get("run_id") == unreachable else None
    return Interruption(*histories)


def error_of(database: Database, history: Any) -> str | None:
    with database.read() as session:
        return session.get_one(MirrorRow, history.experiment_id).error


def test_where_mlflow_fails_after_a_batch_one_experiment_has_the_error(
    mirror: Any, interruption: Interruption, database: Database
) -> None:
    """The last events of one that waits, and is to be deleted, still get to MLflow."""
    with database.read() as session:
        waits_since = session.get_one(MirrorRow, interruption.waiting.experiment_id).updated_at
    with pytest.raises(MirrorFailed):
        mirror.loop.run_once()

    assert "MLflow at" in str(error_of(database, interruption.failing))
    with database.read() as session:
        waiting = session.get_one(ExperimentRow, interruption.waiting.experiment_id)
        assert mirrors.is_catching_up(session, waiting, waits_since)


def test_an_experiment_at_which_mlflow_always_fails_rests(
    mirror: Any, interruption: Interruption, connection: BadConnection
) -> None:
    """The others are mirrored immediately. Health shows the failure meanwhile."""
    loop = Loop(mirror.loop)

    assert loop._run_once() == 0
    connection.calls = []
    for _ in range(2):
        assert loop._run_once() <= mirror.loop.every
        assert "the mirror of 1 experiment fails with MlflowUnavailable" in str(loop.health()["error"])

    assert "trial 00" in mirror.runs(interruption.waiting.name)
    assert connection.calls.count("runs/get") == 2  # of the one that waited: before and after its batch


def test_after_its_rest_an_experiment_at_which_mlflow_has_failed_is_mirrored(
    mirror: Any, interruption: Interruption, connection: BadConnection, database: Database
) -> None:
    seconds = [0.0]
    mirror.loop._backoff._clock = lambda: sum(seconds)
    for _ in range(2):
        with pytest.raises(MirrorFailed):
            mirror.loop.run_once()
    connection.failure = lambda _: None
    seconds.append(1)

    mirror.catch_up()

    assert "trial 00" in mirror.runs(interruption.failing.name)
    assert error_of(database, interruption.failing) is None


def test_ends_that_are_taken_back_together_are_so_in_smaller_batches(
    mirror: Any, begin_experiment: Callable[..., Any]
) -> None:
    """Otherwise the best value after the first of them would be shown, at the same time and step as the right one."""
    history = begin_experiment()
    trials = [history.trial(number, lr=0.1) for number in range(3)]
    for trial, value in zip(trials, (0.9, 0.7, 0.4), strict=True):
        history.end(trial, "stopped", value)
    mirror.catch_up()
    together = history.now
    for trial in trials[:2]:
        history.now = together
        history.revive(trial)
    history.now = together + timedelta(seconds=1)
    mirror.loop._batch_sizes.of(history.experiment_id).failed(2)

    assert mirror.loop.run_once() == 1
    mirror.catch_up()

    parent = mirror.runs(history.name)[history.name]
    assert mirror.curve(parent, "best_val_accuracy") == [(1, 0.9), (2, 0.9), (3, 0.4), (3, 0.9)]
    assert parent.data.metrics["best_val_accuracy"] == 0.4
