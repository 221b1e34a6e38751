"""An agent that ends in an orderly way or is killed, and its slots."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer import ray_inventory
from tests.trainer.conftest import AGENT_PROCESS, Add, until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from trainer.wire import FailureKind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[FakeService]:
    """A service for this test alone, because another agent works for the session's one."""
    with FakeService(str(tmp_path)).serving() as service:
        yield service


@contextmanager
def agent(service: FakeService, address: str, name: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    script = AGENT_PROCESS
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, script, service.url, name, address], cwd="/", stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_a_trial_on_the_spare_slot_continues_without_its_agent_and_a_new_agent_adopts_the_slot(
    service: FakeService, add: Add, ray_address: str, record: Path, tmp_path: Path
) -> None:
    def logged(pattern: str) -> list[str]:
        return re.findall(pattern, log.read_text())

    name, log = f"agent-{uuid.uuid4().hex[:6]}", tmp_path / "agent.log"
    with agent(service, ray_address, name, log) as process:
        service.wait_for(lambda: any(claim.nodes for claim in service.claims), what="a claim")
        spare = until(lambda: logged(r"slot (\S+) starts before there is work"), "the spare slot starts")
        first = add(config={"steps": 40, "pause": 0.1})
        service.wait_for(lambda: service.reports[first], what="a report")
        assert logged(r"slot (\S+) starts for experiment") == spare
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert service.finished(first).outcome == Outcome.COMPLETED
    assert [r.sequence for r in service.reports[first]] == list(range(40))
    second = add("say_who")
    with agent(service, ray_address, name, log):
        assert service.finished(second).outcome == Outcome.COMPLETED
        said = sorted(line for line in record.read_text().splitlines() if "forked" in line)
        assert said == ["0 forked True", "1 forked True"]
        third = add(config={"steps": 10_000, "pause": 0.1})
        service.wait_for(lambda: service.reports[third], what="a report")
    # The agent has ended: it gave back what ran, and left nothing behind.
    error = service.finishes[third].error
    assert error is not None
    assert error.kind == FailureKind.PREEMPTED
    looked = subprocess.run(
        [sys.executable, ray_inventory.__file__, ray_address, name], capture_output=True, check=True
    )
    assert looked.stdout.decode().split() == []


def test_an_unreachable_cluster_is_reported_after_the_timeout() -> None:
    # In a separate process, because Ray retries without end.
    code = "from trainer.agent.cluster import connect; connect('127.0.0.1:1', 'paceline', seconds=3)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert "ClusterUnreachable: no Ray cluster" in ended.stderr
    assert "127.0.0.1:1" in ended.stderr
