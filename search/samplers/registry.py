"""The samplers by name."""

from collections.abc import Iterator, Mapping
from functools import cache

from search.plugins import SAMPLER_GROUP, Plugins, plugins
from search.samplers.auto import Auto
from search.samplers.brute_force import BruteForce
from search.samplers.cmaes import Cmaes
from search.samplers.gp import Gp
from search.samplers.grid import Grid
from search.samplers.nsga import Nsga2, Nsga3
from search.samplers.qmc import Qmc
from search.samplers.random import Random
from search.samplers.sampler import Sampler
from search.samplers.tpe import Tpe

OWN_SAMPLERS: dict[str, type[Sampler]] = {
    "auto": Auto,
    "tpe": Tpe,
    "gp": Gp,
    "cmaes": Cmaes,
    "nsga2": Nsga2,
    "nsga3": Nsga3,
    "qmc": Qmc,
    "random": Random,
    "grid": Grid,
    "brute_force": BruteForce,
}


@cache
def sampler_plugins() -> Plugins[Sampler]:
    """Loaded at first use, because their modules import this package."""
    return plugins(SAMPLER_GROUP, Sampler, OWN_SAMPLERS)  # type: ignore[type-abstract] # it is not instantiated


class _Samplers(Mapping[str, type[Sampler]]):
    """The service's own samplers, and those of other packages."""

    def __getitem__(self, name: str) -> type[Sampler]:
        return OWN_SAMPLERS[name] if name in OWN_SAMPLERS else sampler_plugins().kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*OWN_SAMPLERS, *sampler_plugins().kinds))

    def __len__(self) -> int:
        return len(OWN_SAMPLERS) + len(sampler_plugins().kinds)


SAMPLERS = _Samplers()
