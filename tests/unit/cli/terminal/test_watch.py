"""Following an experiment while the service is away, and its page in MLflow in the summary."""

import io
from collections.abc import Iterator, Sequence
from typing import Any, cast

import httpx
import pytest
from rich.console import Console

from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.cli.terminal import watch

SERVER = "http://127.0.0.1:5000"
PAGE = f"{SERVER}/#/experiments/1/runs"
ENDED: dict[str, Any] = {"id": "x-1", "status": "completed", "mlflow_url": None, "mlflow_error": None}


class LaggingMirror:
    """A service whose mirror creates the page after `looks` looks at the experiment."""

    def __init__(self, looks: int, server: str | None = SERVER, error: str | None = None) -> None:
        self._looks, self._server, self._error = looks, server, error

    def readiness(self) -> dict[str, Any]:
        return {"mlflow_url": self._server}

    def experiment(self, _name: str) -> dict[str, Any]:
        self._looks -= 1
        return ENDED | {"mlflow_url": None if self._looks else PAGE, "mlflow_error": self._error}


def page(service: LaggingMirror, **changes: Any) -> str | None:
    return watch.mlflow_page(cast(Client, service), ENDED | changes)


@pytest.fixture(autouse=True)
def _polls_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.0)


def test_a_page_that_the_mirror_has_not_created_yet_is_waited_for() -> None:
    assert page(LaggingMirror(looks=3)) == PAGE


def test_a_page_that_exists_is_shown_at_once() -> None:
    assert page(LaggingMirror(looks=0), mlflow_url=PAGE) == PAGE


@pytest.mark.parametrize("error", ["MLflow cannot be used: timed out", None])
def test_an_experiment_without_a_page_names_the_server_and_why(
    monkeypatch: pytest.MonkeyPatch, error: str | None
) -> None:
    monkeypatch.setattr(watch, "MLFLOW_SECONDS", 0.0)
    shown = page(LaggingMirror(looks=-1, error=error), mlflow_error=error)
    assert shown == f"{SERVER} has no page of it yet: {error or 'its events are still being written'}"


def test_a_service_without_mlflow_names_no_page() -> None:
    assert page(LaggingMirror(looks=0, server=None)) is None


AWAY = Unreachable("http://127.0.0.1:8000", httpx.ConnectError("connection refused"))
PROXY = Refused({"status": 502, "detail": "bad gateway"})
DELETED = Refused({"status": 404, "type": "urn:paceline:error:not-found", "detail": "there is no experiment x-1"})
COMPLETED = ({"kind": "trial.completed", "data": {"number": 0, "step": 3, "values": {"loss": 0.5}}},)


class RestartingService:
    """A service whose answers about its experiment are these, in turn: a status, or the error of a call that fails."""

    url = "http://127.0.0.1:8000"

    def __init__(self, *answers: str | Exception, events: Sequence[dict[str, Any]] = COMPLETED) -> None:
        self._answers, self._events = iter(answers), events

    def experiment(self, _name: str) -> dict[str, Any]:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        spec = {"objectives": [{"metric": "loss", "direction": "minimize"}], "limits": {"max_trials": 2}}
        return ENDED | {"name": "mine", "spec": spec, "status": answer, "created_at": "2026-01-01T00:00:00Z"}

    def events(self, _experiment: str, after: int) -> Iterator[dict[str, Any]]:
        for seq, event in enumerate(self._events, 1):
            if seq > after:
                yield {"seq": seq, "trial": "t-1", "at": "2026-01-01T00:00:00Z"} | event

    def readiness(self) -> dict[str, Any]:
        return {"mlflow_url": None}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(*answers: str | Exception, outage_seconds: float = 60, terminal: str = "", **of_service: Any) -> str:
    """What is printed, to a terminal of this kind or to a pipe."""
    output = Terminal() if terminal else io.StringIO()
    service = cast(Client, RestartingService(*answers, **of_service))
    console = Console(file=output, width=200, force_terminal=bool(terminal) or None, _environ={"TERM": terminal})
    assert watch.watch_experiment(service, "mine", console, outage_seconds)["status"] == "completed"
    return output.getvalue()


def test_an_experiment_is_followed_while_the_service_starts_again() -> None:
    shown = watched("running", "running", AWAY, AWAY, PROXY, "running", "completed")
    assert shown.count("no service answers at http://127.0.0.1:8000") == shown.count("the service answers again") == 1
    assert shown.count("trial 0 completed at step 3: loss 0.5") == 1


def test_the_summary_leaves_mlflow_out_while_the_service_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_service: object) -> dict[str, Any]:
        raise AWAY

    monkeypatch.setattr(RestartingService, "readiness", away)
    assert "MLflow" not in watched("running", "completed")


def test_the_end_of_an_experiment_is_shown_although_its_events_were_not_answered_at_once() -> None:
    assert "trial 0 completed" in watched("completed", AWAY, "completed")


def test_a_service_that_stays_away_ends_following() -> None:
    with pytest.raises(Unreachable):
        watched("running", "running", AWAY, AWAY, outage_seconds=0)


def test_an_experiment_that_was_deleted_meanwhile_ends_following() -> None:
    with pytest.raises(Refused, match="no experiment"):
        watched("running", "running", DELETED)


def test_new_trials_count_as_queued_and_unknown_events_as_nothing() -> None:
    created = [{"kind": "trial.created", "data": {"number": number, "params": {}}} for number in range(2)]
    unknown = [{"kind": "trial.compared", "data": {}}, {"kind": "trial.compared", "data": {"number": 1}}]
    assert "trials; 2 queued\n" in watched("running", "completed", events=[*created, *unknown])


def test_a_trial_that_continues_with_other_params_stays_paused() -> None:
    data = {"number": 0, "params": {}}
    paused = {"kind": "trial.paused", "data": {"number": 0, "reason": "it waits", "step": 1}}
    exploited = {"kind": "trial.exploited", "data": data | {"checkpoint": {"uri": "/1", "step": 1}}}
    shown = watched("running", "completed", events=[{"kind": "trial.created", "data": data}, paused, exploited])
    assert "trials; 1 paused\n" in shown


def test_a_terminal_that_cannot_be_drawn_over_gets_a_line_for_each_end() -> None:
    assert watched("running", "completed", terminal="dumb").startswith("trial 0 completed at step 3: loss 0.5\n")
    assert "trials   " in watched("running", "completed", terminal="xterm")


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_pipe_is_not_drawn_over_whatever_the_environment_says(variable: str) -> None:
    output = io.StringIO()
    console = Console(file=output, width=200, _environ={"TERM": "xterm", variable: "1"})
    watch.watch_experiment(cast(Client, RestartingService("running", "completed")), "mine", console)
    assert output.getvalue().startswith("trial 0 completed at step 3")
