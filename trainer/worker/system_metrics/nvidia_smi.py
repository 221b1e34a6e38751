"""The load of a node's NVIDIA GPUs, from `nvidia-smi`.

A process of its own, and not NVML in this one: a driver that hangs must not hang the training function's process.
"""

import shutil
import subprocess
from typing import Any

FIELDS = (
    "index",
    "uuid",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "power.draw",
    "enforced.power.limit",
)
PATIENCE_SECONDS = 5.0
KILL_SECONDS = 1.0
"""One that hangs in the driver does not even end when it is killed."""

MEGABYTES_PER_MIB = 1.048576
"""`nvidia-smi` counts MiB, and MLflow's metrics are in megabytes."""

Gpu = dict[str, Any]
"""`index` and `uuid` as `nvidia-smi` has them, and `metrics` by MLflow's names without `gpu_0_`."""


def parse_gpus(output: str) -> list[Gpu]:
    """The GPUs that `nvidia-smi` lists. A value that it does not know, such as `[N/A]`, is left out."""
    rows = [[one.strip() for one in line.split(",")] for line in output.splitlines()]
    return [_gpu(row) for row in rows if len(row) == len(FIELDS)]


def _gpu(row: list[str]) -> Gpu:
    index, uuid, *texts = row
    utilization, used, total, power, limit = map(_number, texts)
    metrics = {
        "utilization_percentage": utilization,
        "memory_usage_megabytes": None if used is None else round(used * MEGABYTES_PER_MIB, 1),
        "memory_usage_percentage": _percentage(used, total),
        "power_usage_watts": power,
        "power_usage_percentage": _percentage(power, limit),
    }
    return {"index": index, "uuid": uuid, "metrics": {k: value for k, value in metrics.items() if value is not None}}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _percentage(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else round(100 * part / whole, 1)


class NvidiaSmi:
    """Asks `nvidia-smi`, unless it is missing. One that has failed once is not asked again."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._process: subprocess.Popen[str] | None = None

    def gpus(self) -> list[Gpu]:
        """All of the node. Takes `PATIENCE_SECONDS` and `KILL_SECONDS` at most."""
        if self._program is None:
            return []
        command = [self._program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
        try:
            found = parse_gpus(self._output_of(command))
        except (OSError, subprocess.SubprocessError):
            found = []
        if not found:
            self._program = None
        return found

    def stop(self) -> None:
        """End a call in another thread. There is no later one."""
        self._program = None
        if (process := self._process) is not None:
            process.kill()

    def _output_of(self, command: list[str]) -> str:
        process = self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
            errors="replace",
        )
        if self._program is None:  # stopped before `stop` could see the process
            process.kill()
        try:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=KILL_SECONDS)
            return ""
        return output if process.returncode == 0 else ""
