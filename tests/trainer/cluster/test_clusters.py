"""Two Ray clusters, with an agent each, work on one experiment: one's loss is the other's work."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from service.stack.ports import free_port
from service.store.tables import AttemptRow
from tests.conftest import Api, a_spec, changed, running
from tests.processes import family_of, kill_all
from tests.ray_nodes import start_head
from tests.trainer.conftest import AGENT_PROCESS, USER_CODE, another_agent, until
from tests.trainer.fake_service import PATIENCE_SECONDS
from trainer.wire import FailureKind

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]

ONE_PER_CLUSTER = {"num_workers": 1, "resources_per_worker": {"CPU": 5}}


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    with running(changed(settings, lease_seconds=PATIENCE_SECONDS)) as api:
        yield api


@dataclass
class Site:
    """The processes of a cluster and its agent, as on one machine that fails."""

    processes: list[subprocess.Popen[bytes]]

    def lose_power(self) -> None:
        kill_all([one for process in self.processes for one in family_of(process.pid)])
        for process in self.processes:
            process.wait()


@pytest.fixture
def near(api: Api, ray_address: str) -> Iterator[None]:
    with another_agent(str(api.http.base_url), "near", ray_address):
        yield


@pytest.fixture
def far(api: Api) -> Iterator[Site]:
    """The far cluster has six CPUs; the near one has eight."""
    site = Site([])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:  # short: it gets sockets
        try:
            address = _start_cluster(site, Path(directory), cpus=6)
            command = [sys.executable, AGENT_PROCESS, str(api.http.base_url), "far", address]
            site.processes.append(subprocess.Popen(command, cwd="/", start_new_session=True))
            yield site
        finally:
            site.lose_power()


def _start_cluster(site: Site, directory: Path, cpus: int) -> str:
    port = free_port("127.0.0.1")
    head = start_head(port, directory, cpus=cpus)
    site.processes.append(head)
    address = directory / "ray_current_cluster"
    until(lambda: address.exists() or head.poll() is not None, "the cluster has started")
    return address.read_text()


def begun(api: Api, record: Path) -> None:
    """Two trials, which save a checkpoint with every step, without end; each cluster has room for one."""
    content = {"params": {"filename": "train.py"}, "content": USER_CODE.read_bytes()}
    package = api.post("/v1/packages", 201, **content)["id"]
    spec = a_spec(
        config={"do": "save", "record": str(record), "steps": 10_000, "pause": 0.2},
        objectives=[{"metric": "epoch", "direction": "maximize"}],
        trainer={"entrypoint": "train:train_fn", "package": package, "scaling": ONE_PER_CLUSTER},
        limits={"max_trials": 2, "parallelism": 2},
        step_metric="epoch",
    )
    api.post("/v1/experiments", 201, json=spec)


def run_by(api: Api, agent: str) -> list[str]:
    [found] = [one["running"] for one in api.get("/v1/agents")["items"] if one["name"] == agent] or [[]]
    return list(found)


def shown(api: Api, trial: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/v1/trials/{trial}")
    return found


def queued(api: Api, trial: str) -> bool:
    """Its lease runs out; a call that the service had before may extend it again."""
    with api.app.state.context.database.write() as session:
        for attempt in session.query(AttemptRow).where(AttemptRow.trial_id == trial):
            if attempt.lease_expires_at:
                attempt.lease_expires_at -= timedelta(seconds=PATIENCE_SECONDS)
    return bool(shown(api, trial)["status"] == "queued")


@pytest.mark.usefixtures("near")
def test_a_trial_of_a_cluster_that_is_lost_continues_in_the_other(api: Api, far: Site, record: Path) -> None:
    begun(api, record)
    [here] = until(lambda: run_by(api, "near"), "one trial is near")
    [there] = until(lambda: run_by(api, "far"), "the other is far")
    assert here != there
    until(lambda: (shown(api, there)["checkpoint"] or {}).get("step", 0) >= 2, "it saves")
    far.lose_power()
    until(lambda: queued(api, there), "it is lost, and the other cluster has no room for it")
    saved = shown(api, there)["checkpoint"]

    api.post(f"/v1/trials/{here}/stop")
    until(lambda: run_by(api, "near") == [there], "the other cluster has room")
    until(lambda: shown(api, there)["checkpoint"]["step"] >= saved["step"] + 2, "it goes on")
    first, second = shown(api, there)["attempts"]
    assert (first["error"]["kind"], second["resumed_from"]) == (FailureKind.LOST, saved["uri"])
    assert f"0 from {saved['step']}" in record.read_text().splitlines()
    assert (shown(api, here)["status"], len(shown(api, here)["attempts"])) == ("stopped", 1)
    api.post(f"/v1/trials/{there}/stop")
    until(lambda: shown(api, there)["ended_at"], "the end")
