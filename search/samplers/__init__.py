"""Samplers: how an experiment names one, and how each proposes."""

from search.samplers.registry import SAMPLERS
from search.samplers.sampler import ChosenSampler, LibraryMissing
from search.samplers.sampler_spec import SamplerSpec, sampler_meant

__all__ = ["SAMPLERS", "ChosenSampler", "LibraryMissing", "SamplerSpec", "sampler_meant"]
