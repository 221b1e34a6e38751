"""Calls of MLflow fail often, or take too long: the mirror gets to its end, with the same content as otherwise."""

import errno
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from sqlalchemy import delete

from service.background.loop import Loop
from service.background.mirroring import MirrorFailed, Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.tracking_client import TrackingClient
from service.store import mirrors
from service.store.sql.database import Database
from service.store.tables import ExperimentRow, MirrorRow, MirrorRunRow

pytestmark = pytest.mark.slow
SEND = requests.Session.request
API, ARTIFACTS = "/api/2.0/mlflow/", "/api/2.0/mlflow-artifacts/"
MANY_PASSES = 150


class Call(NamedTuple):
    path: str
    body: dict[str, Any]


class BadConnection:
    """`failure` is given each call, and returns what the client gets instead of MLflow's answer."""

    def __init__(self) -> None:
        self.failure: Callable[[Call], Exception | None] = lambda _: None
        self.calls: list[str] = []

    def check(self, url: str, options: dict[str, Any]) -> None:
        path = url.partition(API)[2] or url.partition(ARTIFACTS)[2]
        if path in {"", "server-info"}:
            return
        self.calls.append(path)
        failure = self.failure(Call(path, options.get("json") or options.get("params") or {}))
        if failure is not None:
            raise failure


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> BadConnection:
    connection = BadConnection()

    def request(session: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        connection.check(url, options)
        return SEND(session, method, url, **options)

    monkeypatch.setattr(requests.Session, "request", request)
    return connection


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The durations of calls: the sum is the time."""
    seconds = [0.0]
    monkeypatch.setattr("service.mirror.repeated_calls.monotonic", lambda: sum(seconds))
    monkeypatch.setattr("service.mirror.repeated_calls.SLOW_SECONDS", 1.0)
    return seconds


def server_error(status: int = 503) -> Exception:
    """As requests raises it after an answer with the status."""
    return requests.exceptions.RetryError(f"too many {status} error responses")


def gateway_timeout() -> Exception:
    return server_error(504)


def timeout() -> Exception:
    """As requests raises it, of urllib3, of the socket's error."""
    return caused_by(TimeoutError("timed out"))


def refused() -> Exception:
    return caused_by(ConnectionRefusedError(111, "Connection refused"))


def unknown_name() -> Exception:
    return caused_by(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))


def no_route() -> Exception:
    return caused_by(OSError(errno.EHOSTUNREACH, "No route to host"))


def caused_by(cause: Exception) -> Exception:
    error = requests.ConnectionError("Max retries exceeded")
    error.__cause__ = cause
    return error


def failing_often(rate: float) -> Callable[[Call], Exception | None]:
    numbers = random.Random(7)  # noqa: S311 - no secret
    return lambda _: server_error() if numbers.random() < rate else None


def every(count: int) -> Callable[[Call], Exception | None]:
    """Each so many calls, one takes too long."""
    calls = [0]

    def failure(_: Call) -> Exception | None:
        calls[0] += 1
        return timeout() if calls[0] % count == 0 else None

    return failure


def with_more_metrics_than(most: int, failure: Callable[[], Exception] = timeout) -> Callable[[Call], Exception | None]:
    return lambda call: failure() if len(call.body.get("metrics") or ()) > most else None


def at(path: str, failure: Callable[[], Exception] = server_error) -> Callable[[Call], Exception | None]:
    return lambda call: failure() if call.path == path else None


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
    seconds: list[float],
    kind: str,
) -> None:
    history = begin_experiment()
    trial = history.trial(0, lr=0.1)
    history.run(trial)
    history.report(trial, 1, **{f"layer_{number}": number for number in range(700)})

    def slow() -> Exception:
        seconds.append(5)
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


@pytest.mark.parametrize(
    ("path", "expected"),
    [("runs/get", 6), ("runs/log-batch", 6), ("runs/search", 6), ("runs/create", 1)],
)
def test_calls_that_fail_quickly_are_repeated_but_not_creations(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, path: str, expected: int
) -> None:
    """A proxy may fail after MLflow has created the run."""
    history = begin_experiment()
    mirror.catch_up()
    history.run(history.trial(0, lr=0.1))
    connection.failure, connection.calls = at(path), []
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert connection.calls.count(path) == expected


def test_a_call_that_fails_after_seconds_is_not_repeated(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, seconds: list[float]
) -> None:
    """MLflow may still execute it."""
    history = begin_experiment()
    mirror.catch_up()
    history.run(history.trial(0, lr=0.1))

    def slow() -> Exception:
        seconds.append(5)
        return server_error()

    connection.failure, connection.calls = at("runs/log-batch", slow), []
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert connection.calls.count("runs/log-batch") == 1


@contextmanager
def answering(status: int, calls: list[str]) -> Iterator[str]:
    """A server that answers each call with the status; yields its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            calls.append(self.path.partition(API)[2].partition("?")[0])
            self.send_response(status)
            self.send_header("Retry-After", "30")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize(("status", "expected"), [(429, 1), (503, 6), (504, 1)])
def test_a_status_decides_whether_a_call_is_repeated(status: int, expected: int) -> None:
    """MLflow's client shows these statuses by a text of urllib3 alone, which may change."""
    calls: list[str] = []
    with answering(status, calls) as address, pytest.raises(MlflowUnavailable):
        TrackingClient(address).check_run("a-run")
    assert calls.count("runs/get") == expected


def test_between_the_attempts_are_pauses_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("service.mirror.repeated_calls.FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("service.mirror.repeated_calls.sleep", pauses.append)
    with answering(503, []) as address, pytest.raises(MlflowUnavailable):
        TrackingClient(address).check_run("a-run")
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("failure", [timeout, refused, unknown_name, no_route])
def test_a_call_of_a_server_that_is_away_is_not_repeated(
    mirror: Any, begin_experiment: Callable[..., Any], connection: BadConnection, failure: Callable[[], Exception]
) -> None:
    """Each takes seconds."""
    history = begin_experiment()
    mirror.catch_up()
    history.trial(0, lr=0.1)
    connection.failure, connection.calls = lambda _: failure(), []
    with pytest.raises(MlflowUnavailable):
        mirror.loop.run_once()
    assert connection.calls == ["runs/get"]


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
