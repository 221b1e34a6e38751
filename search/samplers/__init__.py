"""Samplers: how an experiment names one, and how each proposes."""

from search.samplers.registry import PLANNED, SAMPLERS
from search.samplers.spec import SamplerSpec

__all__ = ["PLANNED", "SAMPLERS", "SamplerSpec"]
