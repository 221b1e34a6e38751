"""How busy the nodes and GPUs of an attempt were, as the API shows it."""

from collections.abc import Mapping
from typing import Any, Self

from service.api.views.rows import View
from service.domain.system_metrics_summary import Utilization


class UtilizationView(View):
    """Means and peaks of all samples, in percent. Those of GPUs are null if none could be sampled."""

    sample_count: int
    """how many samples there are; a sample is of one node"""
    mean_cpu_percentage: float | None
    """how busy the CPUs of a node were"""
    mean_gpu_percentage: float | None
    """how busy a GPU of the workers was"""
    peak_gpu_percentage: float | None
    """the highest value of any of them"""
    mean_gpu_memory_percentage: float | None
    """how much of a GPU's memory was used"""
    peak_gpu_memory_percentage: float | None
    """the highest value of any of them"""

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> Self | None:
        if stored is None:
            return None
        known = Utilization.from_json(stored)
        return cls(
            sample_count=known.sample_count,
            mean_cpu_percentage=known.cpu.mean,
            mean_gpu_percentage=known.gpu.mean,
            peak_gpu_percentage=known.gpu.peak,
            mean_gpu_memory_percentage=known.gpu_memory.mean,
            peak_gpu_memory_percentage=known.gpu_memory.peak,
        )
