"""Health, readiness and metrics, and the answers when the service itself fails."""

import operator
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import OperationalError

from service.settings import BadSettings, Settings
from service.store.sql.database import Database
from tests.conftest import Api, running


def test_a_service_with_its_database_is_ready(service: Api) -> None:
    assert service.get("/healthz") == {"status": "alive"}
    ready = service.get("/readyz")
    assert ready["ready"]
    assert {"lease extension", "lease expiry", "time limits"} <= ready["loops"].keys()
    assert ready["loops"]["lease expiry"]["error"] is None


def test_a_database_without_the_schema_is_not_ready(tmp_path: Path) -> None:
    settings = Settings(tmp_path, f"sqlite:///{tmp_path / 'empty.db'}", str(tmp_path))
    with running(settings) as service:
        ready = service.get("/readyz", 503)
        assert "db upgrade" in ready["database"]
        service.get("/healthz")


@pytest.fixture
def away(settings: Settings) -> Iterator[Api]:
    """A service whose database file is gone."""
    with running(settings) as service:
        service.get("/readyz")
        database = Database(settings.database_url)
        with database.engine.begin() as connection:
            connection.execute(text("alter table experiments rename to gone"))
        database.close()
        yield service


def test_a_failing_database_is_reported_without_a_stack_trace(away: Api) -> None:
    response = away.http.get("/v1/experiments")
    assert response.status_code in {500, 503}
    problem = response.json()
    assert problem["status"] == response.status_code
    assert "Traceback" not in response.text
    assert "select" not in response.text.lower()


def test_a_failing_commit_is_never_answered_with_success(settings: Settings) -> None:
    with running(settings) as service:
        created = service.create()
        app = service.app
        event.listen(app.state.context.database.engine, "commit", _fail)
        response = service.http.post(f"/v1/experiments/{created['name']}/pause")
        event.remove(app.state.context.database.engine, "commit", _fail)
        assert response.status_code == 503
        assert response.headers["retry-after"]
        assert service.get(f"/v1/experiments/{created['name']}")["status"] == "running"


def _fail(_connection: Connection) -> None:
    raise OperationalError("commit", {}, Exception("the disk is gone"))


def test_unknown_routes_and_wrong_methods_are_problems(service: Api) -> None:
    for method, path, status in [("GET", "/v1/nothing", 404), ("PUT", "/v1/experiments", 405)]:
        response: httpx.Response = service.http.request(method, path)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["status"] == status


@pytest.mark.slow
def test_openapi_describes_every_route_and_its_references_resolve(service: Api) -> None:
    contract = service.get("/openapi.json")
    assert "/v1/trials/{trial}/reports" in contract["paths"]
    references = {part for part in str(contract).split("'") if part.startswith("#/components/schemas/")}
    for reference in references:
        assert reduce(operator.getitem, reference.removeprefix("#/").split("/"), contract) is not None


def test_the_data_directory_is_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path / "data")}).prepare_directories()
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077]
    assert made == []
    assert (tmp_path / "data" / "lease-key").is_file()


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = Settings(tmp_path / "file" / "data", "sqlite://", "")
    with pytest.raises(BadSettings, match=r"file/data.*PACELINE_DATA_DIR"):
        settings.prepare_directories()


def test_settings_that_are_not_numbers_are_named() -> None:
    with pytest.raises(BadSettings, match="PACELINE_PORT must be a number, not 'http'"):
        Settings.from_env({"PACELINE_PORT": "http"})
    with pytest.raises(BadSettings, match="PACELINE_LEASE_SECONDS must not be negative, not -5"):
        Settings.from_env({"PACELINE_LEASE_SECONDS": "-5"})


WRONG_DATABASES = (
    "sqlite://",
    "sqlite:///",
    "sqlite:///:memory:",
    "sqlite:foo",
    "postgresql:",
    "postgresql+psycopg2://db/x",
    "postgresql+asyncpg://db/x",
)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("PACELINE_DATABASE_URL=mysql://me:hunter2@db/x", "must be sqlite:///.*, not as mysql://…$"),
        ("PACELINE_DATABASE_URL=host=db password=hunter2", "must be sqlite:///.*, and has no scheme$"),
        *((f"PACELINE_DATABASE_URL={url}", "must be sqlite:///") for url in WRONG_DATABASES),
        ("PACELINE_DATABASE_URL=postgresql://me@db:543210/x", "cannot be read"),
        ("PACELINE_DATABASE_URL=postgresql+psycopg://me:pw@db:port/x", "cannot be read; .*//user@host:5432/name$"),
        ("PACELINE_PORT=inf", "must be a number, not 'inf'"),
        ("PACELINE_PORT=8000.5", "must be a whole number up to 65535, not '8000.5'"),
        ("PACELINE_PORT=70000", "must be a whole number up to 65535, not '70000'"),
        ("PACELINE_LEASE_SECONDS=nan", "must be a number, not 'nan'"),
        ("PACELINE_LEASE_SECONDS=0", "must be more than 0"),
        ("PACELINE_MAX_FOLLOWERS=0.5", "must be a whole number up to 1000000, not '0.5'"),
        ("PACELINE_REQUIRE_TOKENS=yess", "must be 1 or 0"),
        ("PACELINE_INSECURE=2", "must be 1 or 0"),
        ("PACELINE_TRACING=2", "must be 1 or 0"),
    ],
)
def test_settings_without_a_meaning_are_refused(setting: str, message: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(BadSettings, match=f"{name} {message}"):
        Settings.from_env({name: value})


def test_a_storage_that_is_a_relative_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    given = ["runs/checkpoints", "~/checkpoints", "/mnt/x", "s3://bucket/x"]
    found = [Settings.from_env({"PACELINE_STORAGE": storage}).storage for storage in given]
    assert found == [f"{tmp_path}/runs/checkpoints", "/home/me/checkpoints", "/mnt/x", "s3://bucket/x"]


@pytest.mark.parametrize("value", ["1", "true", "YES", " on "])
def test_a_switch_is_on_as_it_is_usually_written(value: str) -> None:
    assert Settings.from_env({"PACELINE_REQUIRE_TOKENS": value}).require_tokens


@pytest.mark.parametrize("value", ["", "0", "False", "no", "off"])
def test_a_switch_is_off_as_it_is_usually_written(value: str) -> None:
    assert not Settings.from_env({"PACELINE_REQUIRE_TOKENS": value}).require_tokens


def test_the_lag_of_the_mlflow_mirror_is_shown(settings: Settings) -> None:
    with running(replace(settings, mlflow_uri="http://127.0.0.1:9")) as service:
        held = service.ask(service.create()["name"])
        assert held
        held.report(accuracy=1)
        lines = service.http.get("/metrics").text.splitlines()
        found = dict(line.split() for line in lines if line.startswith("paceline_mirror_lag"))
        assert float(found["paceline_mirror_lag_events"]) == service.get("/readyz")["mlflow_lag"] == 4
        assert float(found["paceline_mirror_lag_seconds"]) > 0


def test_the_credentials_in_the_address_of_mlflow_are_not_shown(settings: Settings) -> None:
    address = "http://me:hidden@127.0.0.1:9/?password=hidden&ticket=hidden"
    environment = {"PACELINE_DATA_DIR": str(settings.data_dir), "PACELINE_MLFLOW_URI": address}
    with running(replace(settings, mlflow_ui=Settings.from_env(environment).mlflow_ui)) as service:
        assert service.get("/readyz")["mlflow_url"] == "http://127.0.0.1:9/?password=***&ticket=***"


def test_metrics_count_requests_by_route_and_status(service: Api) -> None:
    name = service.create()["name"]
    held = service.ask(name)
    assert held
    held.report(accuracy=1)
    service.get(f"/v1/trials/{held.trial}")
    service.get("/v1/trials/none", 404)
    service.http.get("/wp-login.php")
    lines = service.http.get("/metrics").text.splitlines()
    for line in (
        'paceline_experiments{status="running"} 1.0',
        'paceline_live_trials{status="running"} 1.0',
        "paceline_leases 1.0",
        "paceline_agents_connected 0.0",
        "paceline_database_up 1.0",
        'paceline_loop_ok{loop="lease expiry"} 1.0',
        'paceline_http_request_seconds_count{method="GET",route="/v1/trials/{trial}",status="200"} 1.0',
        'paceline_http_request_seconds_count{method="GET",route="/v1/trials/{trial}",status="404"} 1.0',
        'paceline_http_request_seconds_count{method="GET",route="none",status="404"} 1.0',
    ):
        assert line in lines
    assert not any(held.trial in line or name in line for line in lines)
