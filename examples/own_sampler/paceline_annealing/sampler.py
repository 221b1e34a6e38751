"""The sampler `annealing`: a module of OptunaHub, from a local copy of its registry."""

import os
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from search.problem import Feature, Problem
from search.samplers.optuna.study_proposer import StudyProposer
from search.samplers.sampler import Proposer, Sampler

REGISTRY = Path(os.environ.get("OPTUNAHUB_REGISTRY", Path(__file__).with_name("registry")))
"""The operator of the service chooses it: a spec must not name code to be loaded."""


class Annealing(Sampler):
    """Simulated annealing. The fields are its options, which the service validates and shows."""

    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.OBJECTIVES, Feature.CONSTRAINTS})
    drawn_at_random: ClassVar[frozenset[Feature]] = frozenset({Feature.CONDITIONS})

    temperature: Annotated[float, Field(gt=0)] = 100.0
    neighbourhood: Annotated[float, Field(gt=0, le=1)] = 0.2

    @property
    def learns_from_pruned_trials(self) -> bool:
        return False

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        kind = hub_module("samplers/annealing").AnnealingSampler
        return StudyProposer(problem, seed, lambda seed: kind(seed=seed, **self.model_dump()))


@cache
def hub_module(package: str) -> Any:
    """As `optunahub.load_local_module(package=…, registry_root=…)`, which is used where optunahub is installed."""
    loader = SourceFileLoader(package.replace("/", "_"), str(REGISTRY / package / "__init__.py"))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
