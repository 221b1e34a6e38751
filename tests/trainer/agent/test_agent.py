"""An agent that ends in an orderly way or is killed, and its slots."""

import json
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
from tests.trainer.ray_diagnosis import diagnosis, worker_lines
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
    except AssertionError as error:
        process.send_signal(signal.SIGUSR1)  # its stacks
        error.add_note(diagnosis(name))
        error.add_note(f"the agent's log ends with:\n{log.read_text()[-8000:]}")
        raise
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def check_log(log: Path, agent: str) -> None:
    """Each line is an object, and those about a trial name its attempt."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {(line["process"], line["agent"]) for line in lines} == {("agent", agent)}
    about = [line for line in lines if "trial" in line]
    assert about
    assert {(line["experiment"], line["attempt"]) for line in about} == {("x-1", 1)}


def check_workers_lines(output: str, agent: str, trial: str) -> None:
    """Paceline's own line in a rank's output, which is beside the user's."""
    [line] = [json.loads(line) for line in output.splitlines() if "metric 'e' is of type" in line]
    assert {name: line[name] for name in ("process", "agent", "trial", "attempt", "rank", "level")} == {
        "process": "worker",
        "agent": agent,
        "trial": trial,
        "attempt": 1,
        "rank": 0,
        "level": "WARNING",
    }


def check_slots_lines(agent: str, trial: str) -> None:
    """In the file of Ray that has the output of the slot that ran it. On a busy machine, it may be a new slot."""
    lines = [line for line in map(json.loads, worker_lines(f'"{trial}"')) if line["process"] == "slot"]
    assert lines
    assert {(line["agent"], line["attempt"], line["experiment"]) for line in lines} == {(agent, 1, "x-1")}
    assert all(line["slot"].startswith(f"slot.{agent}.") for line in lines)


def test_a_trial_on_the_spare_slot_continues_without_its_agent_and_a_new_agent_adopts_the_slot(
    service: FakeService, add: Add, ray_address: str, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_LOG_FORMAT", "json")

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
        before = len(service.reports[first])
        service.wait_for(lambda: len(service.reports[first]) > before + 1, what="a report without an agent")
    with agent(service, ray_address, name, log):
        assert service.finished(first).outcome == Outcome.COMPLETED
        assert [r.sequence for r in service.reports[first]] == list(range(40))
        second = add("say_who")
        assert service.finished(second).outcome == Outcome.COMPLETED
        assert logged(r"adopted slot (\S+), running") == logged(r"slot (\S+) starts for experiment") == spare
        said = sorted(line for line in record.read_text().splitlines() if "forked" in line)
        assert said == ["0 forked True", "1 forked True"]
        odd = add("report_odd_values")
        assert service.finished(odd).outcome == Outcome.COMPLETED
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
    check_log(log, name)
    check_workers_lines(service.log(odd), name, odd)
    check_slots_lines(name, third)


def test_an_unreachable_cluster_is_reported_after_the_timeout() -> None:
    # In a separate process, because Ray retries without end.
    code = "from trainer.agent.cluster import connect; connect('127.0.0.1:1', 'paceline', seconds=3)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert "ClusterUnreachable: no Ray cluster at 127.0.0.1:1 answered within 3 seconds" in ended.stderr
