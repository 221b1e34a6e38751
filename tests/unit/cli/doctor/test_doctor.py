"""`paceline doctor`: what it finds of a service, of its settings and of a cluster, and what it says to do."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy

from search.samplers.random import Random
from search.samplers.registry import sampler_plugins
from service.cli.doctor import cluster_checks, service_checks
from service.cli.doctor.check import CheckState
from service.cli.doctor.settings_checks import SETTINGS, check_settings
from service.stack.ports import free_port
from tests.unit.cli.canned_service import Answer, answering
from tests.unit.cli.conftest import Run, service_in_a_thread

Json = dict[str, Any]
NODE = {"CPU": 8.0, "GPU": 2.0}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SETTINGS, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_url(tmp_path: Path) -> Iterator[str]:
    """A service of the test's own, since others' agents would be seen."""
    with service_in_a_thread(tmp_path / "data") as url:
        yield url


def checked(run: Run, url: str, code: int = 0) -> dict[str, Json]:
    ended = run("doctor", "--json", "--url", url)
    assert ended.code == code, ended.out + ended.err
    return {one["subject"]: one for one in json.loads(ended.out)}


def claim(url: str, agent: str, **changes: object) -> None:
    message = {"request_id": agent, "nodes": [{"total": NODE, "free": NODE}]} | changes
    httpx.post(f"{url}/v1/agents/{agent}/claim", json=message).raise_for_status()


@pytest.mark.slow
def test_a_service_that_works_passes_and_what_is_missing_is_a_warning(run: Run, own_url: str) -> None:
    found = checked(run, own_url)
    states = {subject: one["state"] for subject, one in found.items()}
    assert states == {
        "service": "ok",
        "clock": "ok",
        "version": "ok",
        "database": "ok",
        "storage": "warning",
        "MLflow": "warning",
        "agents": "warning",
    }
    assert all(one["advice"] for one in found.values() if one["state"] != "ok")
    assert found["clock"]["found"] == "the service's clock agrees with this machine's within 5 s"


@pytest.mark.slow
def test_it_is_shown_as_a_table_with_the_advice(run: Run, own_url: str) -> None:
    ended = run("doctor", "--url", own_url)
    assert ended.code == 0
    assert "none is connected" in ended.out
    assert "→ run `paceline agent` beside a Ray cluster" in ended.out


@pytest.mark.slow
def test_agents_show_their_resources_and_a_storage_that_they_cannot_write(run: Run, own_url: str) -> None:
    claim(own_url, "here")
    assert checked(run, own_url)["agent here"]["found"] == "1 node with 8 CPUs and 2 GPUs; runs 0 trials"
    claim(own_url, "there", storage_error="/mnt/x cannot be written")
    found = checked(run, own_url, code=1)
    assert (found["agent there"]["state"], found["agent there"]["found"]) == ("failed", "/mnt/x cannot be written")
    assert found["agent here"]["state"] == "ok"
    assert found["storage"]["found"].startswith("1 of 2 connected agents cannot write to it")
    assert found["storage"]["advice"] == "see the agents below, and PACELINE_STORAGE of the service"


@pytest.mark.slow
def test_an_agent_with_a_withheld_node_says_why(run: Run, own_url: str) -> None:
    room = {"total": {"CPU": 8}, "free": {"CPU": 8}}
    claim(own_url, "here", nodes=[room, room | {"free": {}, "withheld": "node 10.0.0.5: no room"}])
    found = checked(run, own_url)["agent here"]
    assert found["state"] == "warning"
    assert found["found"] == "gives a node no new trial for some minutes: node 10.0.0.5: no room"
    assert "free space" in found["advice"]


def test_a_service_that_does_not_answer_fails(run: Run) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    found = checked(run, url, code=1)
    assert list(found) == ["service"]
    assert url in found["service"]["found"]
    assert "PACELINE_URL" in found["service"]["advice"]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "advice"), [(404, "address of a Paceline service"), (503, "repeat this later")])
def test_an_answer_that_is_an_error_is_a_failed_check(run: Run, status: int, advice: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = checked(run, f"http://127.0.0.1:{server.server_port}", code=1)
        server.shutdown()
    assert list(found) == ["service"]
    assert advice in found["service"]["advice"]


@pytest.mark.slow
def test_a_missing_token_fails_with_the_command_that_creates_one(run: Run, tmp_path: Path) -> None:
    with service_in_a_thread(tmp_path, PACELINE_REQUIRE_TOKENS="1") as url:
        access = checked(run, url, code=1)["access"]
    assert access["state"] == "failed"
    assert "paceline token create" in access["advice"]


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "words"), [(-90, "ahead of"), (90, "behind")])
def test_a_wrong_clock_is_a_warning(
    run: Run, own_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float, words: str
) -> None:
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)
    clock = checked(run, own_url)["clock"]
    assert clock["state"] == "warning"
    assert f"s {words} this machine's" in clock["found"]


@pytest.mark.slow
def test_another_version_is_a_warning(run: Run, own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_checks, "installed_version", lambda _: "0.0.1")
    version = checked(run, own_url)["version"]
    assert version["state"] == "warning"
    assert version["found"].endswith("this command line 0.0.1")


def settings_states(**environment: str) -> dict[str, CheckState]:
    return {one.subject: one.state for one in check_settings(environment)}


def test_the_settings_are_checked_where_they_are_set(tmp_path: Path) -> None:
    assert settings_states() == {}
    missing = {"data directory": CheckState.WARNING, "database": CheckState.WARNING, "samplers": CheckState.OK}
    assert settings_states(PACELINE_DATA_DIR=str(tmp_path / "data")) == missing
    assert not (tmp_path / "data").exists()
    with service_in_a_thread(tmp_path / "data"):
        pass
    assert settings_states(PACELINE_DATA_DIR=str(tmp_path / "data"))["database"] is CheckState.OK


def test_a_sampler_without_its_library_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    [found] = [one for one in check_settings({"PACELINE_DATA_DIR": str(tmp_path)}) if one.subject == "samplers"]
    assert found.state is CheckState.WARNING
    assert found.found == "gp needs the library torch, which this service does not have"


@pytest.mark.parametrize("error", [RuntimeError("no licence"), SystemExit(3)], ids=repr)
def test_a_sampler_that_fails_when_asked_for_its_library_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    class Failing(Random):
        @classmethod
        def missing(cls) -> str | None:
            raise error

    monkeypatch.setitem(sampler_plugins().kinds, "failing", Failing)
    [found] = [one for one in check_settings({"PACELINE_DATA_DIR": str(tmp_path)}) if one.subject == "samplers"]
    assert found.state is CheckState.WARNING
    assert found.found == f"failing when asked what it needs, it fails with {type(error).__name__}: {error}"


@pytest.mark.slow
def test_a_database_with_an_older_schema_fails(tmp_path: Path) -> None:
    with service_in_a_thread(tmp_path):
        pass
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'paceline.db'}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '0001'"))
    engine.dispose()
    assert settings_states(PACELINE_DATA_DIR=str(tmp_path))["database"] is CheckState.FAILED


def test_what_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    port = free_port()
    environment = {
        "PACELINE_DATA_DIR": str(tmp_path),
        "PACELINE_DATABASE_URL": f"postgresql+psycopg://user:hidden@127.0.0.1:{port}/paceline",
        "PACELINE_MLFLOW_URI": f"http://user:hidden@127.0.0.1:{port}?password=hidden&ticket=hidden",
    }
    found = {one.subject: one for one in check_settings(environment)}
    assert (found["database"].state, found["MLflow"].state) == (CheckState.FAILED, CheckState.WARNING)
    for name in ("database", "MLflow"):
        assert str(port) in found[name].found
        assert "hidden" not in found[name].found


@pytest.mark.parametrize(
    ("body", "shown"), [(b"<html>\nSign in" + b"!" * 1000, "<html> Sign in!"), (b"", "an empty body")]
)
def test_another_program_is_not_taken_for_mlflow(tmp_path: Path, body: bytes, shown: str) -> None:
    with answering(Answer(200, body)) as (address, _):
        checks = check_settings({"PACELINE_DATA_DIR": str(tmp_path), "PACELINE_MLFLOW_URI": address})
        [found] = [one for one in checks if one.subject == "MLflow"]
    assert found.state is CheckState.WARNING
    assert f"{address} does not answer: another program answers there, with 200 and {shown}" in found.found
    assert len(found.found) < 400


def test_mlflow_is_known_by_its_answer(tmp_path: Path) -> None:
    with answering(Answer(200, b"OK")) as (address, _):
        checks = check_settings({"PACELINE_DATA_DIR": str(tmp_path), "PACELINE_MLFLOW_URI": address})
        assert [one.state for one in checks if one.subject == "MLflow"] == [CheckState.OK]


def test_a_cluster_that_cannot_be_asked_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_checks, "DOCTOR_PROBE", "trainer.no_such_module")
    [unknown] = cluster_checks.check_cluster("auto", [], None)
    assert (unknown.subject, unknown.state) == ("Ray", CheckState.FAILED)
    assert "No module named" in unknown.found
    monkeypatch.setattr(cluster_checks, "ask_nodes", lambda *_: {"error": "no Ray cluster", "nodes": []})
    [away] = cluster_checks.check_cluster("auto", [], None)
    assert (away.subject, away.state, away.found) == ("Ray", CheckState.FAILED, "no Ray cluster")


def test_nodes_that_differ_or_reach_nothing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    first: Json = {
        "seconds": 0,
        "python": "3.11.7",
        "packages": {"ray": "2.60.0", "torch": None},
        "services": {"http://a": None},
        "storage_error": None,
    }
    other = first | {"python": "3.12.1", "services": {"http://a": "refused"}, "storage_error": "cannot be written"}
    answer = {
        "error": None,
        "nodes": [
            {"address": "10.0.0.1", "facts": first, "clock_ahead_seconds": 0, "error": None},
            {"address": "10.0.0.2", "facts": other, "clock_ahead_seconds": 40, "error": None},
            {"address": "10.0.0.3", "facts": None, "clock_ahead_seconds": 0, "error": "GetTimeoutError"},
        ],
    }
    monkeypatch.setattr(cluster_checks, "ask_nodes", lambda *_: answer)
    found = [(one.subject, one.state) for one in cluster_checks.check_cluster("auto", ["http://a"], "/mnt")]
    assert found == [
        ("node 10.0.0.1", CheckState.OK),
        ("node 10.0.0.2", CheckState.FAILED),
        ("node 10.0.0.2", CheckState.FAILED),
        ("node 10.0.0.2", CheckState.WARNING),
        ("node 10.0.0.2", CheckState.WARNING),
        ("node 10.0.0.3", CheckState.FAILED),
    ]


def test_a_storage_with_credentials_is_refused_without_showing_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"error": None, "nodes": [{"address": "a", "facts": None, "clock_ahead_seconds": 0, "error": "away"}]}
    monkeypatch.setattr(cluster_checks, "ask_nodes", lambda _, __, storage: answer | {"error": f"{storage} is away"})
    arguments = ("doctor", "--url", f"http://127.0.0.1:{free_port()}", "--ray-address", "auto", "--json")
    ended = run(*arguments, "--storage", "s3://name:hush@models/runs")
    found = {one["subject"]: one for one in json.loads(ended.out)}
    assert "must have no credentials" in found["storage"]["found"]
    assert "hush" not in ended.out + ended.err
    assert "s3://models/runs is away" in run(*arguments, "--storage", "s3://models/runs").out
