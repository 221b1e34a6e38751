"""MLflow, or a proxy before it, asks for a pause: the mirror makes no call meanwhile."""

from collections.abc import Callable
from email.utils import formatdate
from itertools import count
from typing import Any

import pytest

from service.background.mirroring import Mirroring
from service.mirror.mlflow_errors import MlflowUnavailable
from service.mirror.tracking_client import TrackingClient
from service.store.sql.database import Database
from service.store.tables import MirrorRow
from tests.mirror.bad_connection import answering

pytestmark = pytest.mark.slow


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses within calls, which end immediately."""
    pauses: list[float] = []
    monkeypatch.setattr("service.mirror.repeated_calls.sleep", pauses.append)
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
    monkeypatch.setattr("service.mirror.repeated_calls.SLOW_SECONDS", 1.0)
    monkeypatch.setattr("service.mirror.repeated_calls.monotonic", count(step=5).__next__)
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
