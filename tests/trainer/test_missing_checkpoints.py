"""A checkpoint that is gone from the storage, on a real Ray: what the slot says of it, and that the trial goes on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from tests.conftest import Api, a_spec, running
from tests.trainer.conftest import USER_CODE, another_agent, until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.wire import Failure, FailureKind

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CODE = USER_CODE.with_name("saves.py").read_text()


@pytest.fixture
def api(tmp_path: Path, sqlite: Path, ray_address: str) -> Iterator[Api]:
    """A service with an agent that works for it."""
    data_dir = tmp_path / "data"
    url = f"sqlite:///{shutil.copy(sqlite, tmp_path / 'paceline.db')}"
    settings = Settings(
        data_dir=data_dir, database_url=url, storage=str(data_dir / "checkpoints"), lease_seconds=PATIENCE_SECONDS
    )
    settings.prepare_directories()
    with running(settings) as api, another_agent(str(api.http.base_url), "trainer", ray_address):
        yield api


def failure_of(service: FakeService, trainer: dict[str, Any], **config: Any) -> Failure:
    """The failure of a trial whose checkpoint is not there."""
    missing = {"uri": f"{service.storage}/none", "step": 3}
    trial = service.add_trial({"scaling": {"num_workers": 1}, **trainer}, config, resume=missing)
    error = service.finished(trial).error
    assert error is not None
    return error


def test_a_slot_says_that_the_checkpoint_is_missing_unless_the_storage_is_away(service: FakeService) -> None:
    reads = {"entrypoint": "train:read", "package": service.add_package(CODE)}
    command = {"kind": "command", "command": ["true"], "metrics": {"stdout": [r"loss=(?P<loss>\\S+)"]}}
    told = [
        failure_of(service, command),
        *(failure_of(service, reads, by=by, storage="there") for by in ("method", "file", "task")),
    ]
    away = [failure_of(service, reads, by=by, storage=state) for by, state in (("file", "away"), ("method", "back"))]
    assert [one.is_checkpoint_missing for one in told + away] == [True] * 4 + [False] * 2
    assert {one.kind for one in told + away} == {FailureKind.LOST}
    assert all("/none is not on the storage" in one.message for one in told + away)


def test_a_trial_continues_from_an_older_checkpoint_when_the_newest_is_deleted(api: Api) -> None:
    package = api.post("/v1/packages", 201, params={"filename": "train.py"}, content=CODE.encode())["id"]
    spec = a_spec(
        objectives=[{"metric": "epoch", "direction": "maximize"}],
        trainer={"entrypoint": "train:lose_the_newest", "package": package, "scaling": {"num_workers": 1}},
        limits={"max_trials": 1},
        checkpoints={"keep": 3},
        step_metric="epoch",
    )
    name = api.post("/v1/experiments", 201, json=spec)["name"]
    until(lambda: api.get(f"/v1/experiments/{name}")["status"] != "running", "the experiment has ended")
    [trial] = api.get(f"/v1/experiments/{name}/trials")["items"]
    attempts = api.get(f"/v1/trials/{trial['id']}")["attempts"]
    assert [one["resumed_step"] for one in attempts] == [None, 3, 3, 2], attempts
    assert [(one["error"] or {}).get("is_checkpoint_missing") for one in attempts] == [False, True, True, None]
    assert (trial["status"], trial["value"], trial["checkpoint"]["step"]) == ("completed", 4, 4)
