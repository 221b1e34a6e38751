"""What is removed because of its age, and what is not. `LATER` plays the database's clock."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from service.background.age_retention import AgeRetention
from service.operations import age_retention
from service.operations.packages import package_store
from service.runtime.context import Context
from service.settings import Settings
from service.store.packages import packages_without_experiment
from tests.conftest import Api, a_spec, running

pytestmark = pytest.mark.slow

CODE = b"def train(config):\n    pass\n"
DAY = 86_400.0


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def context_of(service: Api) -> Context:
    context: Context = service.app.state.context
    return context


def with_settings(service: Api, **changes: Any) -> Context:
    context = context_of(service)
    return replace(context, settings=replace(context.settings, **changes))


def ended_with_a_log(service: Api) -> tuple[str, str]:
    """The names of an ended experiment and of its trial, which has printed a line."""
    name = service.create(limits={"max_trials": 1})["name"]
    held = service.ask(name)
    assert held
    held.call("logs", 204, {"rank": 0, "offset": 0, "text": "hello\n"})
    held.report(accuracy=1)
    held.finish("completed")
    assert service.get(f"/v1/experiments/{name}")["status"] == "completed"
    return name, held.trial


def log_of(service: Api, trial: str) -> str:
    return service.http.get(f"/v1/trials/{trial}/logs").text


@pytest.fixture
def keeps_logs(settings: Settings) -> Iterator[Api]:
    with running(replace(settings, keep_logs_days=7)) as service:
        yield service


def test_the_logs_of_an_old_experiment_are_removed_and_say_so(keeps_logs: Api) -> None:
    service, context = keeps_logs, context_of(keeps_logs)
    _, trial = ended_with_a_log(service)
    live = service.ask(service.create()["name"])
    assert live
    live.call("logs", 204, {"rank": 0, "offset": 0, "text": "I train\n"})
    assert age_retention.remove_old_logs(context, in_days(6.9)) == 0
    assert age_retention.remove_old_logs(context, in_days(7.1)) == 1
    assert log_of(service, live.trial) == "[rank 0] I train\n"
    assert log_of(service, trial) == ""
    with context.database.write() as session:
        query = sqlalchemy.text("UPDATE experiments SET ended_at = :at WHERE ended_at IS NOT NULL")
        session.execute(query, {"at": at(context, in_days(-8))})
    assert "removed 7 days after the experiment's end (PACELINE_KEEP_LOGS_DAYS)" in log_of(service, trial)
    assert age_retention.remove_old_logs(context, in_days(7.1)) == 0


def at(context: Context, time: datetime) -> Any:
    return time.strftime("%Y-%m-%d %H:%M:%S.%f") if context.database.is_sqlite else time


def test_logs_of_unknown_trials_are_kept_until_they_are_old_themselves(service: Api) -> None:
    """Another database may have used the data directory."""
    context = with_settings(service, keep_logs_days=7)
    other = context.settings.logs_dir / "t-other"
    (other / "1").mkdir(parents=True)
    assert age_retention.remove_old_logs(context, in_days(6)) == 0
    assert age_retention.remove_old_logs(context, in_days(8)) == 1
    assert not other.exists()


def test_a_package_is_removed_once_no_experiment_uses_it(service: Api) -> None:
    context = with_settings(service, keep_packages_days=7)
    used, unused = package(service, CODE), package(service, CODE + b"# other\n")
    name = service.create(trainer={"entrypoint": "train:train", "package": used})["name"]
    assert age_retention.remove_unused_packages(context, in_days(6)) == 0
    assert age_retention.remove_unused_packages(context, in_days(8)) == 1
    service.get(f"/v1/packages/{unused}", 404)
    assert service.http.get(f"/v1/packages/{used}").content == CODE
    assert not path_of(context, unused).exists()
    service.post(f"/v1/experiments/{name}/cancel", 200)
    service.http.delete(f"/v1/experiments/{name}").raise_for_status()
    assert age_retention.remove_unused_packages(context, in_days(8)) == 1
    refused = service.post("/v1/experiments", 422, json=a_spec(trainer={"entrypoint": "train:train", "package": used}))
    assert "send it with POST /v1/packages" in str(refused["errors"])


def test_a_package_that_an_experiment_has_begun_to_use_is_kept(service: Api) -> None:
    context = with_settings(service, keep_packages_days=7)
    found = package(service, CODE)
    with context.database.read() as session:
        assert packages_without_experiment(session) == [found]
    service.create(trainer={"entrypoint": "train:train", "package": found})
    assert not package_store.remove_unused_package(context, found, in_days(8))


def test_a_package_that_is_sent_again_is_kept(service: Api) -> None:
    context = with_settings(service, keep_packages_days=7)
    found = package(service, CODE)
    make_old(path_of(context, found), days=20)
    assert package(service, CODE) == found
    assert age_retention.remove_unused_packages(context, in_days(0)) == 0
    make_old(path_of(context, found), days=20)
    assert age_retention.remove_unused_packages(context, in_days(0)) == 1
    assert package(service, CODE) == found
    assert service.http.get(f"/v1/packages/{found}").content == CODE


def test_a_package_that_is_removed_while_it_is_sent_is_written_again(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_settings(service, keep_packages_days=7)
    found = package(service, CODE)
    write = package_store._write
    once: list[Callable[[], Any]] = [lambda: age_retention.remove_unused_packages(context, in_days(8))]

    def write_and_remove(path: Path, body: bytes) -> None:
        write(path, body)
        if once:
            once.pop()()

    monkeypatch.setattr(package_store, "_write", write_and_remove)
    assert package(service, CODE) == found
    assert service.http.get(f"/v1/packages/{found}").content == CODE


def test_a_package_that_is_removed_after_the_checks_of_a_spec_is_asked_for_again(
    service: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_settings(service, keep_packages_days=7)
    spec = a_spec(trainer={"entrypoint": "train:train", "package": package(service, CODE)})
    gather = "service.operations.experiments.creation.gather_warm_start"
    monkeypatch.setattr(gather, lambda *_: age_retention.remove_unused_packages(context, in_days(8)) and None)
    assert "send it with POST /v1/packages" in str(service.post("/v1/experiments", 422, json=spec)["errors"])
    assert not list(service.get("/v1/experiments")["items"])


def test_old_experiments_are_deleted_only_when_asked(service: Api) -> None:
    name, trial = ended_with_a_log(service)
    live = service.create()["name"]
    assert age_retention.delete_old_experiments(context_of(service), in_days(10_000)) == 0
    context = with_settings(service, keep_experiments_days=30)
    assert age_retention.delete_old_experiments(context, in_days(29)) == 0
    assert age_retention.delete_old_experiments(context, in_days(31)) == 1
    service.get(f"/v1/experiments/{name}", 404)
    service.get(f"/v1/experiments/{live}")
    assert not (context.settings.logs_dir / trial).exists()


def test_an_experiment_that_is_not_in_mlflow_yet_is_not_deleted(settings: Settings) -> None:
    away = replace(settings, mlflow_uri="http://127.0.0.1:9", keep_experiments_days=30)
    with running(away) as service:
        ended_with_a_log(service)
        assert age_retention.delete_old_experiments(context_of(service), in_days(31)) == 0


def test_one_pass_of_the_loop_removes_everything(service: Api) -> None:
    context = with_settings(service, keep_logs_days=1e-9, keep_packages_days=1e-9, keep_experiments_days=1e-9)
    ended_with_a_log(service)
    package(service, CODE)
    other = context.settings.logs_dir / "t-other"
    other.mkdir()
    make_old(other, days=1)
    assert AgeRetention(context).run_once() == 3
    assert AgeRetention(context).run_once() == 0


def package(service: Api, code: bytes) -> str:
    sent = service.http.post("/v1/packages?filename=train.py", content=code, headers={"Content-Type": "text/x-python"})
    assert sent.status_code in {200, 201}, sent.text
    return str(sent.json()["id"])


def path_of(context: Context, package_id: str) -> Path:
    return context.settings.packages_dir / package_id.removeprefix("sha256:")


def make_old(path: Path, days: float) -> None:
    time = datetime.now(UTC).timestamp() - days * DAY
    os.utime(path, (time, time))
