"""What `nvidia-smi` says of the GPUs of a node, and an `nvidia-smi` that is missing, fails or hangs."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fake_nvidia_smi import BUSY, program
from trainer.worker.system_metrics import nvidia_smi
from trainer.worker.system_metrics.nvidia_smi import NvidiaSmi, parse_gpus

SILENT_FAN = "1, GPU-0c5d2d0e-31bb-a0f2-6d0f-9c3e53a0a7f1, 0, 1024, 16384, [N/A], [N/A]"
SPLIT = "2, GPU-9e7d7f10-0a41-8f0d-8a35-3d0f2f2b1c22, [N/A], [N/A], [N/A], 62.10, 400.00"
BROKEN = "3, GPU-77aa0b1c-5f65-4c2e-b6bb-1f1de0c6e3d4, [GPU requires reset], [Unknown Error], 81920, ERR!, [N/A]"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_each_gpu_has_the_metrics_that_it_can_measure() -> None:
    busy, other, split, broken = parse_gpus(f"{BUSY}\n{SILENT_FAN}\n{SPLIT}\n{BROKEN}\n")
    assert busy == {
        "index": "0",
        "uuid": "GPU-4b1f7c52-9a0e-7d39-51f7-2f2cbd9e7b10",
        "metrics": {
            "utilization_percentage": 93.0,
            "memory_usage_megabytes": 42949.7,
            "memory_usage_percentage": 50.0,
            "power_usage_watts": 350.0,
            "power_usage_percentage": 50.0,
        },
    }
    assert set(other["metrics"]) == {"utilization_percentage", "memory_usage_megabytes", "memory_usage_percentage"}
    assert set(split["metrics"]) == {"power_usage_watts", "power_usage_percentage"}
    assert (broken["index"], broken["metrics"]) == ("3", {})


@pytest.mark.parametrize(
    "output",
    [
        "",
        "No devices were found",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver, make sure that it runs.",
        'Field "enforced.power.limit" is not a valid field to query.',
    ],
)
def test_what_is_no_list_of_gpus_has_none(output: str) -> None:
    assert parse_gpus(output) == []


def test_the_program_is_asked_for_its_fields_as_plain_numbers(folder: Path) -> None:
    calls = program(folder, f'echo "{BUSY}"')
    assert NvidiaSmi().gpus() == parse_gpus(BUSY)
    [call] = calls.read_text().splitlines()
    assert call.startswith("--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total,")
    assert call.endswith("--format=csv,noheader,nounits")


def test_a_node_without_the_program_has_no_gpus(folder: Path) -> None:
    assert NvidiaSmi().gpus() == []


@pytest.mark.parametrize("script", ["echo 'No devices were found'; exit 6", f'echo "{BUSY}"; exit 9', "exec sleep 600"])
def test_a_program_that_fails_or_hangs_is_not_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(nvidia_smi, "PATIENCE_SECONDS", 0.5)
    calls, asked = program(folder, script), NvidiaSmi()
    assert [asked.gpus(), asked.gpus()] == [[], []]
    assert not calls.exists() or len(calls.read_text().splitlines()) == 1  # a slow shell may be killed before it begins


def test_a_call_under_way_is_ended(folder: Path) -> None:
    begun = folder / "begun"
    os.mkfifo(begun)
    program(folder, f"echo begun > {begun}; exec sleep 600")
    asked, found = NvidiaSmi(), []
    thread = threading.Thread(target=lambda: found.append(asked.gpus()))
    thread.start()
    assert begun.read_text() == "begun\n"
    asked.stop()
    thread.join()
    assert found == [[]]


def test_a_call_that_begins_as_it_is_ended_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stop` comes after the program runs, and before the other thread has the process."""
    program(folder, "exec sleep 5")
    asked, start, started = NvidiaSmi(), subprocess.Popen, list[subprocess.Popen[str]]()

    def start_and_stop(*args: Any, **options: Any) -> subprocess.Popen[str]:
        started.append(start(*args, **options))
        asked.stop()
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_and_stop)
    monkeypatch.setattr(nvidia_smi, "PATIENCE_SECONDS", 600)
    assert asked.gpus() == []
    assert started[0].returncode == -signal.SIGKILL
