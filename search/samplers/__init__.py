"""Samplers: how an experiment names one, and how each proposes."""

from search.samplers.auto import Choice
from search.samplers.registry import SAMPLERS
from search.samplers.spec import SamplerSpec

__all__ = ["SAMPLERS", "Choice", "SamplerSpec"]
