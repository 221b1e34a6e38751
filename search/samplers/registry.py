"""The samplers by name."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pkgutil import resolve_name

from search.plugins import SAMPLER_GROUP, Plugins, plugins
from search.samplers.sampler import Sampler

OWN_SAMPLERS: dict[str, str] = {
    "auto": "search.samplers.auto:Auto",
    "tpe": "search.samplers.tpe:Tpe",
    "gp": "search.samplers.gp:Gp",
    "cmaes": "search.samplers.cmaes:Cmaes",
    "nsga2": "search.samplers.nsga:Nsga2",
    "nsga3": "search.samplers.nsga:Nsga3",
    "qmc": "search.samplers.qmc:Qmc",
    "random": "search.samplers.random:Random",
    "grid": "search.samplers.grid:Grid",
    "brute_force": "search.samplers.brute_force:BruteForce",
}
"""Where the classes are, as entry points say it: they are imported at first use, because Optuna takes long."""


def own_samplers_in_words() -> str:
    """The names for a description. `auto` comes last, because it chooses one of the others."""
    others = ", ".join(f"`{name}`" for name in OWN_SAMPLERS if name != "auto")
    return f"{others}, or `auto`, which chooses one"


@cache
def sampler_plugins() -> Plugins[Sampler]:
    """Loaded at first use, because their modules import this package."""
    return plugins(SAMPLER_GROUP, Sampler, OWN_SAMPLERS, _flaw)  # type: ignore[type-abstract] # it is not instantiated


def _flaw(_: str, kind: type[Sampler]) -> str | None:
    """The mistakes of every sampler name those that support a feature, so that all of them must tell."""
    for name in ("unsupported", "drawn_at_random"):
        if not isinstance(getattr(kind, name), AbstractSet):
            return f"its {name} must be a frozenset"
    return None


@cache
def _own_sampler(name: str) -> type[Sampler]:
    found: type[Sampler] = resolve_name(OWN_SAMPLERS[name])
    return found


def import_own_samplers() -> None:
    """Import them all now, in a process that will need them: no proposal then waits for an import."""
    for name in OWN_SAMPLERS:
        _own_sampler(name)


class _Samplers(Mapping[str, type[Sampler]]):
    """The service's own samplers, and those of other packages."""

    def __getitem__(self, name: str) -> type[Sampler]:
        return _own_sampler(name) if name in OWN_SAMPLERS else sampler_plugins().kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*OWN_SAMPLERS, *sampler_plugins().kinds))

    def __len__(self) -> int:
        return len(OWN_SAMPLERS) + len(sampler_plugins().kinds)


SAMPLERS = _Samplers()
