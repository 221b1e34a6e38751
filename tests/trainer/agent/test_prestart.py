"""Worker processes that are started ahead, on a real Ray."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import psutil
import pytest

from tests.processes import is_fork_server, kill_all
from tests.trainer.conftest import until
from tests.trainer.fake_service import FakeService

pytestmark = [pytest.mark.ray, pytest.mark.slow]

COUNT = 2


@pytest.fixture
def loop(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The loop for the job of the session's agent; the test runs it. It believes that the processors are idle.

    The agent's own loop rests, because processes that it starts would be counted, too.
    """
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 0.0)
    import ray  # noqa: PLC0415 - heavy

    from trainer.agent.prestarted_workers import PrestartLoop  # noqa: PLC0415 - heavy
    from trainer.ray_train.processes.runtime_environments import forked_runtime_env  # noqa: PLC0415 - heavy

    until(ray.is_initialized, "the agent's connection to Ray")
    found, run_once = PrestartLoop(COUNT, forked_runtime_env()), PrestartLoop.run_once
    monkeypatch.setattr(PrestartLoop, "run_once", lambda self: run_once(self) if self is found else 0)
    yield found
    for node in found.nodes.values():
        node.workers.close()


def unused(loop: Any) -> frozenset[int]:
    (node,) = loop.nodes.values()

    def asked() -> list[frozenset[int]]:
        with contextlib.suppress(grpc.RpcError):  # the raylet of a busy machine may answer late
            return [node.workers.find().unused]
        return []

    found: frozenset[int] = until(asked, "the raylet's answer")[0]
    return found


def is_forked(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return is_fork_server(psutil.Process(pid).ppid())
    return False


def fill(loop: Any) -> frozenset[int]:
    """On a busy machine, a first process may have started by itself before the fork server was ready."""

    def is_full() -> bool:
        loop.run_once()
        kill_all({pid for pid in unused(loop) if not is_forked(pid)})
        return len(unused(loop)) >= COUNT

    until(is_full, "the prestarted processes")
    return unused(loop)


def start_actor(runtime_env: dict[str, Any]) -> Any:
    import ray  # noqa: PLC0415 - heavy

    class Actor:
        def facts(self) -> dict[str, Any]:
            import sys  # noqa: PLC0415 - runs in a worker

            torch = sys.modules.get("torch")
            return {
                "pid": os.getpid(),
                "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "torch": torch is not None,
                "cuda": torch is not None and torch.cuda.is_initialized(),
            }

    return ray.remote(num_cpus=0, num_gpus=1, runtime_env=runtime_env)(Actor).remote()


OTHER_JOB = """
import sys, ray
from trainer.ray_train.processes.runtime_environments import forked_runtime_env
class Actor:
    def answer(self):
        pass
ray.init(sys.argv[1], log_to_driver=False)
actor = ray.remote(num_cpus=0, runtime_env=forked_runtime_env())(Actor).remote()
ray.get(actor.answer.remote())
print("ready", flush=True)
input()
"""


@pytest.fixture(scope="module", autouse=True)
def other_job(ray_address: str) -> Iterator[None]:
    """A forked worker of another job on the node, as after an agent's restart."""
    command = [sys.executable, "-W", "ignore", "-c", OTHER_JOB, ray_address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.kill()


def test_an_actor_gets_a_prestarted_process_with_its_own_gpu_and_another_process_takes_the_place(loop: Any) -> None:
    import ray  # noqa: PLC0415 - heavy

    assert len(fill(loop)) >= COUNT
    assert loop.run_once() == 0
    before = set(psutil.pids())
    actor = start_actor(loop.runtime_env)
    facts = ray.get(actor.facts.remote())
    assert facts["pid"] in before
    assert is_forked(facts["pid"])
    assert facts["torch"]
    assert not facts["cuda"]
    assert facts["gpus"] in {"0", "1", "2", "3"}
    again = fill(loop)
    assert len(again) >= COUNT
    assert facts["pid"] not in again
    ray.kill(actor)


def test_nothing_is_prestarted_while_a_slot_starts_its_workers(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.agent import prestarted_workers  # noqa: PLC0415 - heavy

    def has_none() -> bool:
        kill_all(unused(loop))  # again: one that was asked for may have come late
        return not unused(loop)

    fill(loop)
    until(has_none, "Ray to notice that the processes are gone")
    monkeypatch.setattr(prestarted_workers, "CALM_SECONDS", 600.0)
    loop.pause()
    assert loop.run_once() == 0
    monkeypatch.setattr(prestarted_workers, "CALM_SECONDS", 0.5)
    loop.pause()
    fill(loop)


def test_prestarting_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.agent import prestarted_workers  # noqa: PLC0415 - heavy

    calls: list[object] = []

    def fails_once(loop: object) -> int:
        calls.append(loop)
        if len(calls) == 1:
            raise RuntimeError("Ray's head is away")
        return 0

    monkeypatch.setattr(prestarted_workers.PrestartLoop, "run_once", fails_once)
    monkeypatch.setattr(prestarted_workers, "ERROR_SECONDS", 0.0)
    loop = prestarted_workers.PrestartLoop(COUNT, {})
    loop.start()
    until(lambda: len(calls) > 1, "it is tried again")
    loop.stop()
