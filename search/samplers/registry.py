"""The samplers by name."""

from search.samplers.base import Sampler
from search.samplers.grid import Grid
from search.samplers.random import Random
from search.samplers.tpe import Tpe

SAMPLERS: dict[str, type[Sampler]] = {"tpe": Tpe, "random": Random, "grid": Grid}

# In the API's description, and not to be had yet.
PLANNED = ("gp", "cmaes", "nsga2", "nsga3", "qmc", "brute_force", "auto")
