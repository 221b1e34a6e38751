"""Two agents of one name: the second waits, takes over when the first is dead, and leaves a living one alone."""

import itertools
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.operations.agents import registration
from service.runtime.context import Context
from service.settings import Settings
from tests.conftest import Api, changed, running
from tests.trainer.agent.agents_in_containers import in_a_container
from tests.trainer.agent.test_agent_reconnects import database_url  # noqa: F401 - fixture
from tests.trainer.agent.test_agent_shutdown import NoSlots
from tests.trainer.conftest import until
from tests.trainer.fake_service import PATIENCE_SECONDS
from trainer.agent.process_identity import instance_of, is_dead
from trainer.wire import Claim, Instance

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NODE = {"total": {"CPU": 1}, "free": {"CPU": 1}}
ELSEWHERE = {"place": "elsewhere", "pid": 1, "started": 1}
TRAINER = {"kind": "torch", "entrypoint": "a_module:train_fn"}


class Watched(NoSlots):
    """A pool that records whether it was used."""

    def __init__(self) -> None:
        super().__init__()
        self.adopted, self.closed = threading.Event(), threading.Event()

    def adopt(self) -> None:
        self.adopted.set()

    def close_all(self) -> None:
        self.closed.set()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The leases do not expire during a test: a dead agent's name is free before."""
    return changed(settings, lease_seconds=10 * PATIENCE_SECONDS)


@pytest.fixture
def another() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of the first agent."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def claim(api: Api, instance: dict[str, Any], status: int, **more: Any) -> Any:
    body = {"request_id": uuid.uuid4().hex, "nodes": [NODE], "instance": instance, **more}
    return api.post("/v1/agents/one/claim", status, json=body)


@contextmanager
def working(run_agent: Any, url: str, stop: threading.Event, **options: Any) -> Iterator[None]:
    """An agent in a thread, until the end."""
    agent = threading.Thread(target=run_agent, args=(url, "one", "head:6379"), kwargs={"stop": stop, **options})
    agent.start()
    try:
        yield
    finally:
        stop.set()
        agent.join(PATIENCE_SECONDS)


def test_a_second_agent_waits_for_the_first_to_end_and_gives_way_to_a_third(
    settings: Settings, another: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from trainer.agent import agent  # noqa: PLC0415 - heavy

    pool, stop, ends = Watched(), threading.Event(), list[str]()
    monkeypatch.setattr(agent, "connect", lambda *_arguments: None)
    monkeypatch.setattr(agent, "ray", SimpleNamespace(shutdown=lambda: None))
    monkeypatch.setattr(agent, "SlotPool", lambda *_arguments, **_options: pool)

    def run() -> None:
        try:
            agent.run_agent(str(api.http.base_url), "one", "head:6379", stop=stop)
        except agent.AgentReplaced as replaced:
            ends.append(str(replaced))

    with running(settings) as api:
        api.create(trainer=TRAINER, limits={"max_trials": 1})
        first = instance_of(another.pid)
        trial = claim(api, first, 200)["trial"]
        second = threading.Thread(target=run)
        second.start()
        until(lambda: f"process {another.pid} at" in caplog.text, "the second agent says why it waits")
        assert not pool.adopted.is_set()
        assert api.get(f"/v1/trials/{trial}")["status"] == "running"
        claim(api, first, 204)
        another.kill()
        another.wait()
        assert pool.adopted.wait(PATIENCE_SECONDS)
        claim(api, first, 409)
        # as if the second one had been unreachable for longer than its name's lease
        claim(api, first, 204, replaces=current(api))
        second.join(PATIENCE_SECONDS)
        assert "was replaced" in ends[0]
        assert not pool.closed.is_set()
        stop.set()


def test_an_agent_that_ends_releases_its_name(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.agent import agent  # noqa: PLC0415 - heavy

    pool, stop = Watched(), threading.Event()
    monkeypatch.setattr(agent, "connect", lambda *_arguments: None)
    monkeypatch.setattr(agent, "ray", SimpleNamespace(shutdown=lambda: None))
    monkeypatch.setattr(agent, "SlotPool", lambda *_arguments, **_options: pool)
    monkeypatch.setattr(agent, "LEAVE_SECONDS", PATIENCE_SECONDS)  # a busy machine may need longer than an agent waits
    with running(settings) as api:
        first = threading.Thread(
            target=agent.run_agent, args=(str(api.http.base_url), "one", ""), kwargs={"stop": stop}
        )
        first.start()
        assert pool.adopted.wait(PATIENCE_SECONDS)
        claim(api, ELSEWHERE, 409)
        stop.set()
        first.join(PATIENCE_SECONDS)
        claim(api, ELSEWHERE, 204)
        api.post("/v1/agents/one/leave", 204, json=instance_of(os.getpid()))
        claim(api, instance_of(os.getpid()), 409)


def test_a_claim_that_the_service_receives_after_the_agent_has_left_keeps_no_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.agent import agent  # noqa: PLC0415 - heavy

    claims, late, left, stop = itertools.count(), threading.Event(), threading.Event(), threading.Event()
    register, release = registration.register_agent, registration.release_name

    def register_late(context: Context, name: str, message: Claim) -> None:
        if message.instance and message.instance.pid == os.getpid() and next(claims):
            late.set()
            left.wait(PATIENCE_SECONDS)
        register(context, name, message)

    def release_and_tell(context: Context, name: str, instance: Instance) -> None:
        release(context, name, instance)
        left.set()

    monkeypatch.setattr(registration, "register_agent", register_late)
    monkeypatch.setattr(registration, "release_name", release_and_tell)
    monkeypatch.setattr(agent, "connect", lambda *_arguments: None)
    monkeypatch.setattr(agent, "ray", SimpleNamespace(shutdown=lambda: None))
    monkeypatch.setattr(agent, "SlotPool", lambda *_arguments, **_options: Watched())
    monkeypatch.setattr(agent, "LEAVE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(agent, "LAST_CLAIM_SECONDS", PATIENCE_SECONDS)
    with running(settings) as api:
        first = threading.Thread(
            target=agent.run_agent, args=(str(api.http.base_url), "one", ""), kwargs={"stop": stop}
        )
        first.start()
        assert late.wait(PATIENCE_SECONDS)
        stop.set()
        first.join(PATIENCE_SECONDS)
        claim(api, ELSEWHERE, 204)


def test_an_agent_takes_the_name_of_one_whose_container_was_killed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.agent import agent  # noqa: PLC0415 - heavy

    pool, stop = Watched(), threading.Event()
    monkeypatch.setattr(agent, "connect", lambda *_arguments: None)
    monkeypatch.setattr(agent, "ray", SimpleNamespace(shutdown=lambda: None))
    monkeypatch.setattr(agent, "SlotPool", lambda *_arguments, **_options: pool)
    with running(settings) as api, in_a_container(tmp_path) as (former, kill):
        claim(api, former, 204)
        kill()
        with working(agent.run_agent, str(api.http.base_url), stop=stop, state=tmp_path):
            assert pool.adopted.wait(PATIENCE_SECONDS), "it waits for the end of the lease"
    assert not list((tmp_path / "agents").iterdir())


def current(api: Api) -> Any:
    return claim(api, ELSEWHERE, 409)["holder"]


def test_a_process_is_dead_when_it_has_ended_or_its_id_is_used_by_another(another: subprocess.Popen[bytes]) -> None:
    living = instance_of(another.pid)
    assert not is_dead(living)
    assert is_dead({**living, "started": living["started"] - 1})
    another.kill()
    assert another.wait()
    assert is_dead(living)
    assert not is_dead({**living, "place": "elsewhere"})


def test_a_process_hidden_from_this_user_is_not_considered_dead(
    another: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    living = instance_of(another.pid)

    def hidden(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not is_dead(living)
    another.kill()
    another.wait()
    assert is_dead(living)


def test_a_zombie_is_dead(another: subprocess.Popen[bytes]) -> None:
    living = instance_of(another.pid)
    another.kill()
    until(lambda: is_dead(living), "the killed process, for which no parent has waited, is known to be dead")
