"""The thread that samples a node while an attempt runs."""

import os
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fake_nvidia_smi import BUSY, program
from trainer.worker.system_metrics import load_thread, nvidia_smi
from trainer.worker.system_metrics.load_thread import sampling, visible_gpus

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the module imports Ray

Samples = queue.Queue[tuple[dict[str, float], list[dict[str, Any]]]]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "paceline-system-metrics"]


def test_samples_of_the_node_and_its_gpus_come_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f'echo "{BUSY}"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    samples: Samples = queue.Queue()
    with sampling(0.01, lambda load, gpus: samples.put((load, gpus)), has_gpus=True):
        for _ in range(2):
            load, [gpu] = samples.get(timeout=60)
            assert "cpu_utilization_percentage" in load
            assert gpu["metrics"]["utilization_percentage"] == 93
    assert threads() == []


def test_a_worker_without_gpus_never_asks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = program(tmp_path, f'echo "{BUSY}"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    samples: Samples = queue.Queue()
    with sampling(0.01, lambda load, gpus: samples.put((load, gpus)), has_gpus=False):
        assert samples.get(timeout=60)[1] == []
    assert not calls.exists()


def test_sampling_that_is_turned_off_has_no_thread() -> None:
    with sampling(None, lambda *_sample: None, has_gpus=True):
        assert threads() == []


def test_an_end_waits_for_no_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    program(tmp_path, f"echo begun > {begun}; exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(nvidia_smi, "PATIENCE_SECONDS", 600)
    monkeypatch.setattr(load_thread, "END_SECONDS", 60)  # the machine may be slow
    samples: Samples = queue.Queue()
    with sampling(0.01, lambda load, gpus: samples.put((load, gpus)), has_gpus=True):
        assert begun.read_text() == "begun\n"
    assert threads() == []
    assert samples.empty()


def test_an_error_ends_the_samples_and_not_the_trial(caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    def fail(*_sample: Any) -> None:
        failed.set()
        raise OSError("the slot is gone")

    with sampling(0.01, fail, has_gpus=False):
        assert failed.wait(60)
    assert "the node's load is not sampled any more: OSError('the slot is gone')" in caplog.text


@pytest.mark.parametrize(
    ("named", "gpus"), [("", []), ("0", ["0"]), ("2, 3", ["2", "3"]), ("GPU-4b1f,MIG-0c5d", ["GPU-4b1f", "MIG-0c5d"])]
)
def test_the_gpus_of_a_worker_are_those_of_cuda(monkeypatch: pytest.MonkeyPatch, named: str, gpus: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == gpus
