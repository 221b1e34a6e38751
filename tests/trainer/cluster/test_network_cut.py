"""The network between a cluster and a real service is cut for longer than the lease, and both agree afterwards."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from service.store.tables import AgentRow, AttemptRow
from tests.conftest import Api, a_spec, changed, running
from tests.processes import is_alive
from tests.trainer.cluster.network import Cable
from tests.trainer.conftest import USER_CODE, another_agent, until
from trainer.wire import FailureKind

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)]

LEASE_SECONDS = 120
"""On a busy machine a shorter lease may run out by itself."""


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    with running(changed(settings, lease_seconds=LEASE_SECONDS)) as api:
        yield api


@pytest.fixture
def cable(api: Api) -> Iterator[Cable]:
    with Cable(api.http.base_url.port or 0).laid() as cable:
        yield cable


@pytest.fixture
def cluster(cable: Cable, ray_address: str) -> Iterator[None]:
    """An agent and its slots, which reach the service by the cable alone."""
    with another_agent(cable.url, "far", ray_address):
        yield


@pytest.fixture
def trial(api: Api, record: Path) -> str:
    """Saves a checkpoint with every step, without end."""
    content = {"params": {"filename": "train.py"}, "content": USER_CODE.read_bytes()}
    package = api.post("/v1/packages", 201, **content)["id"]
    spec = a_spec(
        config={"do": "save", "record": str(record), "steps": 10_000, "pause": 0.2},
        objectives=[{"metric": "epoch", "direction": "maximize"}],
        trainer={"entrypoint": "train:train_fn", "package": package, "scaling": {"num_workers": 1}},
        limits={"max_trials": 1},
        step_metric="epoch",
    )
    experiment = api.post("/v1/experiments", 201, json=spec)["id"]
    found: str = until(lambda: api.get(f"/v1/experiments/{experiment}/trials")["items"], "a claim")[0]["id"]
    return found


def steps(record: Path) -> list[tuple[str, int]]:
    found = re.findall(r"^0 (from|step) (\d+)$", record.read_text() if record.exists() else "", re.MULTILINE)
    return [(word, int(step)) for word, step in found]


def pids(record: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"^0 pid (\d+)$", record.read_text(), re.MULTILINE)]


def shown(api: Api, trial: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/v1/trials/{trial}")
    return found


def let_leases_run_out(api: Api) -> None:
    """Ends leases of attempts and of agents' names; calls that the service has before may extend them again."""
    with api.app.state.context.database.write() as session:
        for attempt in session.query(AttemptRow).where(AttemptRow.lease_expires_at.is_not(None)):
            attempt.lease_expires_at -= timedelta(seconds=LEASE_SECONDS)
        for agent in session.query(AgentRow).where(AgentRow.name_expires_at.is_not(None)):
            agent.name_expires_at -= timedelta(seconds=LEASE_SECONDS)


@pytest.mark.usefixtures("cluster")
def test_an_attempt_that_was_cut_off_for_longer_than_its_lease_changes_nothing_and_ends(
    api: Api, cable: Cable, trial: str, record: Path
) -> None:
    until(lambda: (shown(api, trial)["step"] or 0) >= 2, "two steps")
    cable.cut()
    at_cut = steps(record)[-1][1]
    until(lambda: steps(record)[-1][1] >= at_cut + 2, "it goes on by itself")

    def has_ended() -> bool:
        let_leases_run_out(api)
        return shown(api, trial)["attempts"][0]["ended_at"] is not None

    until(has_ended, "the lease runs out")
    known = shown(api, trial)["checkpoint"]
    assert known["step"] < steps(record)[-1][1]
    cable.restore()
    until(lambda: ("from", known["step"]) in steps(record), "the next attempt")
    until(lambda: not is_alive(pids(record)[0]), "the first one ends")
    both = len(steps(record))
    until(lambda: shown(api, trial)["step"] >= known["step"] + 3, "it gets on")
    until(lambda: len(steps(record)) > both + 2, "it gets on alone")

    api.post(f"/v1/trials/{trial}/stop")
    until(lambda: shown(api, trial)["status"] == "stopped", "the end")
    first, second = shown(api, trial)["attempts"]
    assert first["error"]["kind"] == FailureKind.LOST
    assert second["resumed_from"] == known["uri"]
    (_, start), *after = steps(record)[both:]
    assert after == [("step", start + 1 + n) for n in range(len(after))], "one of both trained on"
    reports = api.get(f"/v1/trials/{trial}/reports", params={"limit": 1000})["items"]
    assert [r["step"] for r in reports] == list(range(1, len(reports) + 1))
    checkpoints = api.get(f"/v1/trials/{trial}/checkpoints")["items"]
    assert {c["attempt"] for c in checkpoints} == {2}, "what the first saved late is not believed"
    assert all(Path(c["uri"], "shard-0").read_text() == str(c["step"]) for c in checkpoints)
