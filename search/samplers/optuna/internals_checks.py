"""Whether Optuna's private parts still do what the samplers rely on.

Optuna is pinned to one minor release. Should another one run, its private parts may be missing, or may exist and do
something else, which raises nothing: a method that Optuna no longer calls overrides nothing.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from search.problem import Direction, Observation, Problem, Status
from search.samplers.optuna.ask import ask, newest_draw, without_warning
from search.samplers.optuna.conversion import distributions_of, frozen_trial_of
from search.samplers.optuna.frozen_trials import with_value
from search.samplers.optuna.study_proposer import StudyProposer
from search.samplers.sampler import Proposer
from search.space.space import Params, Space
from search.thread_safe_import import import_modules

log = logging.getLogger(__name__)

_SEED = 7
_STATUSES: Sequence[Status] = ("completed", "completed", "completed", "completed", "completed", "pruned", "running")


class ChangedBehaviour(Exception):
    """A private part of Optuna exists, but does not do what is relied on."""


@cache
def usable(algorithm: str) -> bool:
    """Whether the private parts that the algorithm relies on work. If not, the log says so, once in a process."""
    try:
        for check in CHECKS[algorithm]:
            check()
    except Exception as error:  # noqa: BLE001 - whatever another Optuna raises
        message = (
            "Optuna %s behaves differently from the supported 5.0 (check failed: %s). The sampler %s uses Optuna's "
            "public classes only, which is slower"
        )
        cause = error if isinstance(error, ChangedBehaviour) else f"{type(error).__name__}: {error}"
        log.warning(message, optuna.__version__, cause, algorithm)
        return False
    return True


def import_gp_modules() -> None:
    """Import what Optuna's GPSampler imports when it first proposes; see `thread_safe_import`."""
    if not usable("gp"):
        import_modules("scipy.stats", "torch")


def gp_modules_exist() -> None:
    from search.samplers.optuna.internals import GP_MODULES  # noqa: PLC0415 - may fail, and is then caught

    import_modules(*GP_MODULES)


def gp_models_curves() -> None:
    from search.samplers.optuna.gp.curve_gp_sampler import CurveGpSampler  # noqa: PLC0415 - may fail, and is then caught
    from search.samplers.optuna.gp.curve_proposer import CurveProposer  # noqa: PLC0415 - only where it works

    options: dict[str, Any] = {
        "n_startup_trials": 4,
        "deterministic_objective": False,
        "warn_independent_sampling": False,
    }
    problem = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("minimize",), prunes=True)

    def proposals(best: float) -> list[float]:
        proposer = CurveProposer(problem, _SEED, partial(without_warning, CurveGpSampler, **options), 4)
        _learn(proposer, (_stopped(number, best) for number in range(9)))
        return [float(str(proposer.propose(number)["x"])) for number in (20, 21)]

    found = {best: proposals(best) for best in (0.4, 0.7)}
    is_near = all(abs(one - best) < 0.1 for best, proposed in found.items() for one in proposed)  # noqa: PLR2004
    _expect("a Gaussian process learns from the curves that it is given", is_near)
    _expect("a Gaussian process is a function of the history", proposals(0.4) == found[0.4])


def _stopped(number: int, best: float) -> Observation:
    """Each has its least loss at `best`, and all losses become less from step to step."""
    x = number / 8
    rungs = tuple((step, (x - best) ** 2 + 1 / step) for step in (1, 3, 9)[: 1 + number % 3])
    return Observation(number, {"x": x}, "running" if number == 1 else "pruned", rungs=rungs)


def gp_avoids_where_trials_diverge() -> None:
    from search.samplers.optuna.gp.sampler import DivergenceGpSampler  # noqa: PLC0415 - may fail, and is then caught

    problem = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("maximize",))
    history = [_beyond_the_middle_infinite(problem, number) for number in range(9)]
    options: dict[str, Any] = {"seed": _SEED, "n_startup_trials": 4, "warn_independent_sampling": False}
    proposed = ask(problem, without_warning(DivergenceGpSampler, **options), history, 9)["x"]
    _expect("a Gaussian process avoids where trials diverge", float(str(proposed)) < 0.6)  # noqa: PLR2004


def _beyond_the_middle_infinite(problem: Problem, number: int) -> FrozenTrial:
    x = number / 8
    observation = Observation(number, {"x": x}, "completed", (x,))
    trial = frozen_trial_of(problem, observation, distributions_of(problem.space))
    return trial if x <= 0.5 else with_value(trial, math.inf)  # noqa: PLR2004


def gp_counts_from_the_best_expected_value(*, running: bool) -> None:
    """The check has a constraint, because then the expected improvement is a part of the acquisition function."""
    from search.samplers.optuna.gp.sampler import DivergenceGpSampler  # noqa: PLC0415 - may fail, and is then caught

    space = Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}})
    problem = Problem(space, ("minimize",), constrained=True)
    observations = [_noisy(number) for number in range(24)]
    if running:
        observations[-1] = Observation(23, observations[-1].params, "running")
    history = [frozen_trial_of(problem, one, distributions_of(space)) for one in observations]
    options: dict[str, Any] = {"seed": _SEED, "n_startup_trials": 4, "warn_independent_sampling": False}
    proposed = ask(problem, without_warning(DivergenceGpSampler, **options), history, 24)["x"]
    is_near = abs(float(str(proposed)) - 0.4) < 0.2  # noqa: PLR2004
    _expect("a Gaussian process counts improvement from the best expected value", is_near)


def gp_tells_what_it_expects() -> None:
    from search.samplers.optuna.gp.sampler import DivergenceGpSampler  # noqa: PLC0415 - may fail, and is then caught

    problem = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("maximize",))
    observations = [Observation(number, {"x": number / 8}, "completed", (number - 2.0,)) for number in range(9)]
    history = [frozen_trial_of(problem, one, distributions_of(problem.space)) for one in observations]
    options: dict[str, Any] = {"seed": _SEED, "n_startup_trials": 4, "warn_independent_sampling": False}
    sampler = without_warning(DivergenceGpSampler, **options)
    expected = newest_draw(problem, sampler, history, 9).expected()
    is_near = expected is not None and expected.value is not None and abs(expected.value - 6) < 1
    _expect("a Gaussian process tells the value that it expects of its proposal", is_near)


def _noisy(number: int) -> Observation:
    """The least loss is at 0.3. One trial was lucky: to surpass its value is expected far away only."""
    x = number * 0.618 % 1
    loss = (x - 0.3) ** 2 + (-0.6 if number == 9 else 0.1 * (-1) ** number)  # noqa: PLR2004
    return Observation(number, {"x": x}, "completed", (loss,), constraints=(x - 0.95,))


def tpe_proposes_what_optunas_does(*, objectives: int = 1, group: bool = False) -> None:
    from search.samplers.optuna.tpe.sampler import ColumnsProposer  # noqa: PLC0415 - may fail, and is then caught

    problem = _problem(objectives)
    options: dict[str, Any] = {
        "n_startup_trials": 4,
        "n_ei_candidates": 8,
        "multivariate": objectives == 1,
        "group": group,
        "constant_liar": True,
    }
    public = partial(without_warning, optuna.samplers.TPESampler, **options)
    ours = ColumnsProposer(problem, _SEED, **options)
    theirs = StudyProposer(problem, _SEED, lambda seed: public(seed=seed))
    _expect("TPE proposes what its public class does", _proposals(ours, problem) == _proposals(theirs, problem))


def estimator_takes_the_kernels_of_a_subclass() -> None:
    import numpy as np  # noqa: PLC0415
    from optuna.distributions import FloatDistribution  # noqa: PLC0415

    from search.samplers.optuna.internals import ParzenEstimator, mixture_of  # noqa: PLC0415 - may fail
    from search.samplers.optuna.tpe.estimator import SortedParzenEstimator  # noqa: PLC0415
    from search.samplers.optuna.tpe.sampler import PARAMETERS  # noqa: PLC0415

    seen: dict[str, Any] = {"x": np.array([0.4, 0.1, 0.8])}
    space: dict[str, Any] = {"x": FloatDistribution(0, 1)}
    asked: list[str] = []

    class Asked(SortedParzenEstimator):
        def kernels(self, observations: Any, name: str, space: Any, parameters: Any) -> Any:
            asked.append(name)
            return super().kernels(observations, name, space, parameters)

    ours, theirs = (
        [(one.mu.tolist(), one.sigma.tolist()) for one in mixture_of(estimator).distributions]  # type: ignore[union-attr]
        for estimator in (
            Asked(seen, space, PARAMETERS, orders={"x": np.argsort(seen["x"])}),
            ParzenEstimator(seen, space, PARAMETERS),
        )
    )
    _expect("a Parzen estimator takes the kernels of its subclass", asked == ["x"] and ours == theirs)


def cmaes_samples_with_the_given_optimizer(**options: Any) -> None:
    from search.samplers.optuna.cmaes_proposer import CmaesProposer  # noqa: PLC0415 - may fail, and is then caught

    problem = _problem()
    startup, evolved = (CmaesProposer(problem, _SEED, popsize=4, **options) for _ in range(2))
    history = _history(problem, 9)
    _learn(startup, history[:1])
    _learn(evolved, history)
    _expect("CMA-ES samples with the optimizer of the generations before", startup.propose(20) != evolved.propose(20))
    _expect("CMA-ES is a function of the history", evolved.propose(20) == evolved.propose(20))
    _expect("CMA-ES draws its random numbers from the trial's seed", startup.propose(20) != startup.propose(21))


def cmaes_draws_alike_from_a_new_and_from_a_restored_optimizer() -> None:
    import pickle  # noqa: PLC0415

    from search.samplers.optuna.cmaes_sampler import EvolvedCmaEsSampler  # noqa: PLC0415 - may fail
    from search.samplers.optuna.conversion import joint_numbers_of  # noqa: PLC0415
    from search.samplers.optuna.internals import SearchSpaceTransform  # noqa: PLC0415

    problem = _problem()
    space = joint_numbers_of(problem.space)
    new = EvolvedCmaEsSampler(space, None, seed=_SEED)
    kept = pickle.dumps(new.new_optimizer(SearchSpaceTransform(space, transform_0_1=True)))
    proposals = [ask(problem, EvolvedCmaEsSampler(space, one, seed=_SEED), [], 3) for one in (None, kept)]
    _expect("CMA-ES draws alike from a new and from a restored optimizer", proposals[0] == proposals[1])


def qmc_proposes_the_point_with_the_trials_number() -> None:
    from scipy.stats import qmc  # noqa: PLC0415 - loaded when it is needed

    from search.samplers.optuna.qmc_proposer import QmcProposer  # noqa: PLC0415 - may fail, and is then caught

    problem = Problem(Space.model_validate({"x": {"type": "float", "low": 0, "high": 1}}), ("minimize",))
    proposer = QmcProposer(problem, _SEED, qmc_type="sobol", scramble=False)
    points = [proposer.propose(number)["x"] for number in range(4)]
    _expect(
        "QMC proposes the point with the trial's number",
        points == qmc.Sobol(1, scramble=False).random(4)[:, 0].tolist(),
    )


Check = Callable[[], None]
CHECKS: Mapping[str, Sequence[Check]] = {
    "tpe": (
        tpe_proposes_what_optunas_does,
        partial(tpe_proposes_what_optunas_does, group=True),
        partial(tpe_proposes_what_optunas_does, objectives=2),
        estimator_takes_the_kernels_of_a_subclass,
    ),
    "cmaes": (
        cmaes_samples_with_the_given_optimizer,
        partial(cmaes_samples_with_the_given_optimizer, with_margin=True),
        cmaes_draws_alike_from_a_new_and_from_a_restored_optimizer,
    ),
    "qmc": (qmc_proposes_the_point_with_the_trials_number,),
    "gp": (
        gp_modules_exist,
        gp_models_curves,
        gp_avoids_where_trials_diverge,
        partial(gp_counts_from_the_best_expected_value, running=False),
        partial(gp_counts_from_the_best_expected_value, running=True),
        gp_tells_what_it_expects,
    ),
}
"""By sampler, what must hold for Paceline to use Optuna's private parts. They take half a second together."""


def _expect(what: str, holds: bool) -> None:
    if not holds:
        raise ChangedBehaviour(what)


def _problem(objectives: int = 1) -> Problem:
    space = {
        "lr": {"type": "float", "low": 1e-4, "high": 1, "log": True},
        "depth": {"type": "int", "low": 1, "high": 9},
        "drop": {"type": "float", "low": 0, "high": 0.5, "step": 0.125},
        "act": {"type": "categorical", "choices": ["relu", "gelu"]},
        "slope": {"type": "float", "low": 0, "high": 1, "when": {"act": "relu"}},
    }
    minimize: Direction = "minimize"
    return Problem(Space.model_validate(space), (minimize,) * objectives)


def _history(problem: Problem, count: int) -> list[Observation]:
    return [_observation(number, len(problem.directions)) for number in range(count)]


def _observation(number: int, objectives: int) -> Observation:
    """Irregular numbers, without a generator: each trial of every kind that a sampler may learn from."""
    share = number * 0.618 % 1
    params: Params = {"lr": 10 ** (-4 * share), "depth": 1 + number * 5 % 9, "drop": number * 3 % 5 * 0.125}
    params |= {"act": "relu", "slope": share * share} if number % 3 else {"act": "gelu"}
    status = _STATUSES[number % len(_STATUSES)]
    if status != "completed":
        return Observation(number, params, status, last_step=number, last_value=share)
    return Observation(number, params, "completed", tuple((share - one) ** 2 for one in range(objectives)))


def _learn(proposer: Proposer, history: Iterable[Observation]) -> None:
    for observation in history:
        proposer.learn(observation)


def _proposals(proposer: Proposer, problem: Problem) -> list[Params]:
    _learn(proposer, _history(problem, 20))
    return [proposer.propose(number) for number in (20, 21)]
