"""The samplers by name."""

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

SAMPLERS: dict[str, type[Sampler]] = {
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
