"""How busy the nodes and GPUs of an attempt were, summed up sample by sample. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

CPU = re.compile(r"cpu_utilization_percentage")
GPU = re.compile(r"gpu_\d+_utilization_percentage")
GPU_MEMORY = re.compile(r"gpu_\d+_memory_usage_percentage")
"""The names of metrics that count, as MLflow has them."""

DIGITS = 1


@dataclass(frozen=True)
class Share:
    """Values of one kind, in percent: how many, their sum, and the highest."""

    count: int = 0
    total: float = 0.0
    highest: float = 0.0

    @property
    def mean(self) -> float | None:
        return round(self.total / self.count, DIGITS) if self.count else None

    @property
    def peak(self) -> float | None:
        return round(self.highest, DIGITS) if self.count else None

    def after(self, values: Sequence[float]) -> "Share":
        return Share(self.count + len(values), self.total + sum(values), max(self.highest, *values, 0.0))


@dataclass(frozen=True)
class Utilization:
    """The utilization of an attempt so far. `next_sequence` is the first sample that has not arrived."""

    next_sequence: int = 0
    sample_count: int = 0
    cpu: Share = Share()
    gpu: Share = Share()
    gpu_memory: Share = Share()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Self:
        known = stored or {}
        return cls(
            next_sequence=int(known.get("next_sequence", 0)),
            sample_count=int(known.get("sample_count", 0)),
            cpu=Share(**known.get("cpu", {})),
            gpu=Share(**known.get("gpu", {})),
            gpu_memory=Share(**known.get("gpu_memory", {})),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def after(self, sequence: int, metrics: Mapping[str, float]) -> "Utilization":
        """The utilization with one more sample. Samples that the holder has lost in between are left out."""

        def of(names: re.Pattern[str]) -> list[float]:
            return [value for name, value in metrics.items() if names.fullmatch(name)]

        return Utilization(
            next_sequence=sequence + 1,
            sample_count=self.sample_count + 1,
            cpu=self.cpu.after(of(CPU)),
            gpu=self.gpu.after(of(GPU)),
            gpu_memory=self.gpu_memory.after(of(GPU_MEMORY)),
        )
