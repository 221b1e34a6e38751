"""MLflow, or a proxy before it, asks for a pause: the mirror makes no call meanwhile."""

import threading
from collections.abc import Callable
from email.utils import formatdate
from itertools import count
from typing import Any

import pytest

from service.background.charting import Charting
from service.background.loop import Loop
from service.background.mirroring import Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.tracking_server.requested_pause import RequestedPause
from service.mirror.tracking_server.tracking_client import TrackingClient
from service.store.sql.database import Database
from service.store.tables import MirrorRow
from tests.mirror.bad_connection import BadConnection, Call, answering
from tests.mirror.conftest import START
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses within calls, which end immediately."""
    pauses: list[float] = []
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.sleep", pauses.append)
    return pauses


@pytest.mark.parametrize("status", [429, 503])
def test_a_call_is_repeated_after_a_short_pause(status: int, pauses: list[float]) -> None:
    calls: list[str] = []
    with answering(status, calls, retry_after="1") as address, pytest.raises(MlflowUnavailable):
        TrackingClient(address).check_run("a-run")
    assert calls.count("runs/get") == 6
    assert pauses == [1.0] * 5


def test_a_call_that_has_taken_seconds_is_not_repeated(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    """MLflow may still execute it."""
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.SLOW_SECONDS", 1.0)
    monkeypatch.setattr("service.mirror.tracking_server.call_retries.monotonic", count(step=5).__next__)
    calls: list[str] = []
    with answering(503, calls, retry_after="1") as address, pytest.raises(MlflowUnavailable):
        TrackingClient(address).check_run("a-run")
    assert (calls.count("runs/get"), pauses) == (1, [])


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("retry_after", "seconds"), [("30", 30), ("3600", 60)], ids=["short", "an-hour"])
@pytest.mark.usefixtures("pauses")
def test_there_is_no_call_before_a_longer_pause_has_passed(
    begin_experiment: Callable[..., Any], database: Database, status: int, retry_after: str, seconds: int
) -> None:
    """The longest one is a minute."""
    history = begin_experiment()
    calls: list[str] = []
    passed = [0.0]
    with answering(status, calls, retry_after) as address:
        loop = Mirroring(database, address, clock=lambda: sum(passed))
        for number in (1, 2):
            with pytest.raises(MlflowUnavailable, match=rf"asks for a pause of {retry_after} s \(Retry-After\)"):
                loop.run_once()
            passed.append(seconds - 1)
            with pytest.raises(
                MlflowUnavailable, match=r"has asked for a pause \(Retry-After\), of which 1 s are left"
            ):
                loop.run_once()
            assert calls.count("experiments/get-by-name") == number
            passed.append(1)
    with database.read() as session:
        assert "asks for a pause" in str(session.get_one(MirrorRow, history.experiment_id).error)


def test_a_date_is_understood(pauses: list[float]) -> None:
    calls: list[str] = []
    with answering(503, calls, formatdate(4e9, usegmt=True)) as address, pytest.raises(MlflowUnavailable, match="asks"):
        TrackingClient(address).check_run("a-run")
    assert (calls.count("runs/get"), pauses) == (1, [])


def test_nonsense_is_no_pause(pauses: list[float]) -> None:
    calls: list[str] = []
    with answering(503, calls, "soon") as address, pytest.raises(MlflowUnavailable, match="cannot be used"):
        TrackingClient(address).check_run("a-run")
    assert (calls.count("runs/get"), len(pauses)) == (6, 5)


@pytest.fixture
def with_due_charts(begin_experiment: Callable[..., Any], database: Database) -> list[str]:
    """Two experiments whose charts were refused before, in the order in which they are drawn."""
    ids = [begin_experiment(f"x-00000000000{place}", name=f"{place}-of-two").experiment_id for place in "ab"]
    with database.write() as session:
        for one in ids:
            row = MirrorRow(experiment_id=one, cursor=0, parent_run_id="r", updated_at=START, pictures_error="refused")
            session.add(row)
    return ids


def errors_of_charts(database: Database, experiment_ids: list[str]) -> list[str | None]:
    with database.read() as session:
        return [session.get_one(MirrorRow, one).pictures_error for one in experiment_ids]


def charting(database: Database, address: str, pause: RequestedPause) -> Charting:
    return Charting(database, address, refresh=0, stopping=threading.Event(), pause=pause)


@pytest.mark.usefixtures("pauses")
def test_no_charts_are_drawn_in_a_pause_that_the_mirror_is_asked_for(
    with_due_charts: list[str], database: Database
) -> None:
    calls: list[str] = []
    pause = RequestedPause(lambda: 0.0)
    with answering(503, calls, "30") as address:
        with pytest.raises(MlflowUnavailable, match="asks for a pause"):
            Mirroring(database, address, pause=pause).run_once()
        before = len(calls)
        assert charting(database, address, pause).run_once() == 0
    assert len(calls) == before
    assert errors_of_charts(database, with_due_charts) == ["refused", "refused"]


@pytest.mark.usefixtures("pauses")
def test_the_mirror_makes_no_call_in_a_pause_that_charts_are_asked_for(
    with_due_charts: list[str], database: Database
) -> None:
    """The experiments whose charts are due after it keep their errors."""
    calls: list[str] = []
    pause = RequestedPause(lambda: 0.0)
    with answering(503, calls, "30") as address:
        assert charting(database, address, pause).run_once() == 0
        with pytest.raises(MlflowUnavailable, match="of which 30 s are left"):
            Mirroring(database, address, pause=pause).run_once()
    assert calls.count("runs/get") == 1
    asked, waiting = errors_of_charts(database, with_due_charts)
    assert "asks for a pause of 30 s" in str(asked)
    assert waiting == "refused"


def test_a_pause_that_begins_during_a_pass_of_the_mirror_is_no_error_of_an_experiment(
    begin_experiment: Callable[..., Any], database: Database, connection: BadConnection, mirror: Any
) -> None:
    """It is asked for by an answer to the other loop."""
    history = begin_experiment()
    mirror.catch_up()
    history.run(history.trial(0, lr=0.1))
    passed = [0.0]
    pause = RequestedPause(lambda: sum(passed))

    def begin_pause(call: Call) -> None:
        if call.path == "runs/log-batch":
            pause.begin(30)

    connection.failure, connection.calls = begin_pause, []
    loop = Mirroring(database, mirror.client.tracking_uri, pause=pause)
    with pytest.raises(MlflowUnavailable, match="of which 30 s are left"):
        loop.run_once()
    assert connection.calls == ["runs/get", "runs/log-batch"]
    with database.read() as session:
        assert session.get_one(MirrorRow, history.experiment_id).error is None

    connection.failure = lambda _: None
    passed.append(30)
    assert loop.run_once() == 2, "the whole batch again: a smaller one is for failures"


def test_the_loop_keeps_its_pace_in_a_pause(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it the mirror continues soon. The loop's clock shows each call as longer than its interval."""
    hours = count(step=3600)
    monkeypatch.setattr("service.background.loop.monotonic", lambda: next(hours))
    looks, enough = count(), threading.Event()

    def clock() -> float:
        if next(looks) == 100:
            enough.set()
        return 0.0

    pause = RequestedPause(clock)
    pause.begin(30)
    loop = Loop(Mirroring(database, "http://127.0.0.1:9", pause=pause), needed=False)
    loop.start()
    has_kept_pace = enough.wait(PATIENCE_SECONDS)
    loop.stop(PATIENCE_SECONDS)
    assert has_kept_pace
    assert "of which 30 s are left" in str(loop.health()["error"])


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    pause = RequestedPause(lambda: 0.0)
    pause.begin(30)
    pause.begin(1)
    with pytest.raises(MlflowUnavailable, match="of which 30 s are left"):
        pause.check()
