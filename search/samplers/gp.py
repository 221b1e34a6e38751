"""Bayesian optimization with Gaussian processes."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from optuna.samplers import GPSampler
from optuna.trial import FrozenTrial
from pydantic import Field

from search.mistakes import Mistake
from search.problem import Direction, Problem, sign_of
from search.samplers.deferred_model import DeferredModel
from search.samplers.learning_curve import LearningCurve
from search.samplers.optuna.ask import without_warning
from search.samplers.optuna.conversion import is_diverged
from search.samplers.optuna.frozen_trials import with_value
from search.samplers.optuna.gp.absent_values import AbsentValues
from search.samplers.optuna.gp.curve_points import stride
from search.samplers.optuna.gp.curve_proposer import CurveProposer
from search.samplers.optuna.internals_checks import import_gp_modules, usable
from search.samplers.optuna.study_proposer import StudyProposer
from search.samplers.sampler import LibraryMissing, Proposer, Sampler
from search.space.space import Space

MAX_SCORED_TRIALS = 200
"""With the curve score every trial that has reached a rung counts, so that there can be thousands."""
MAX_FAST_TRIALS = 500
"""On one thread a proposal takes 0.6 to 1.7 s after 500 completed trials, and 4 s and more after 1,000."""
MIN_STARTUP, MAX_STARTUP = 4, 10
"""Of random draws. Fewer were measured to be better after 20 whole trials, the more so the fewer parameters there are,
and no worse after 40. With early stopping most draws cost little, and the end is better with all of them:
docs/reference/performance.md."""
MAX_VALUES = 2_000_000
"""Optuna lays out all values of a parameter with steps, several times for each proposal. Here it does so only where
`without_steps` cannot be used."""


class Gp(Sampler):
    """Optuna's GPSampler, for hundreds of trials: a proposal's time grows with the cube of the completed trials.

    Where early stopping compares trials by the only objective, its model is one of the learning curves. A second
    model learns where trials diverge. Improvement counts from the best expected value, which with noise is below the
    best observed one. It learns about parameters under conditions.

    Without `n_startup_trials` the model starts after 10 trials where early stopping may end them, otherwise after 4 and
    one more for each parameter: at most 10, and at most a quarter of the budget if that is more than 4.
    """

    library: ClassVar[str | None] = "torch"
    may_repeat: ClassVar[bool] = True

    n_startup_trials: Annotated[int, Field(ge=0)] | None = None
    deterministic_objective: bool = False

    def mistakes_with(self, problem: Problem) -> list[Mistake]:
        return [
            Mistake(
                ("space", name),
                f"gp supports at most {MAX_VALUES:,} values, and this parameter has {len(values):,}: "
                "use a larger step, or a float without a step",
            )
            for name, parameter in problem.space.root.items()
            if (values := parameter.values()) is not None and len(values) > MAX_VALUES
        ]

    def warnings_with(self, problem: Problem) -> list[Mistake]:
        most = problem.max_trials
        if problem.curve_score or (most is not None and most <= MAX_FAST_TRIALS):
            return []
        takes = f"takes about a second of processor time after {MAX_FAST_TRIALS} trials and four after 1000"
        may_have = f"and the search may have {'any number' if most is None else most}; those of auto and tpe stay fast"
        return [Mistake(("search", "sampler"), f"a proposal of gp {takes}, {may_have}")]

    def startup_count(self, problem: Problem) -> int:
        """At least 1, because a model needs a trial."""
        if self.n_startup_trials is not None:
            return max(1, self.n_startup_trials)
        if problem.prunes:
            return MAX_STARTUP
        count = min(MAX_STARTUP, MIN_STARTUP + len(problem.space.root))
        return count if problem.max_trials is None else min(count, max(MIN_STARTUP, problem.max_trials // 4))

    @property
    def learns_from_pruned_trials(self) -> bool:
        return False

    def gains_by_curve_score(self, problem: Problem) -> bool:
        return models_curves(problem)

    def proposer(self, problem: Problem, seed: int) -> Proposer:
        """Each model is fitted from its prior: started from the last fit, it would depend on earlier proposals.

        Raises LibraryMissing.
        """
        if missing := self.missing():
            raise LibraryMissing(f"gp {missing}")
        needed = self.startup_count(problem)
        sampler = partial(self._sampler, GPSampler, needed)
        startup = StudyProposer(problem, seed, sampler, max_draws=2)
        return DeferredModel(startup, needed, partial(self._model, problem, seed, needed))

    @classmethod
    def import_library(cls) -> None:
        import_gp_modules()

    def _model(self, problem: Problem, seed: int, needed: int) -> Proposer:
        import_gp_modules()
        has_internals = usable("gp")
        if has_internals and problem.curve_score and models_curves(problem):
            return CurveProposer(problem, seed, partial(self._curve_sampler, problem.space, needed), needed)
        made: Callable[..., GPSampler] = partial(_continuous_sampler, problem.space) if has_internals else GPSampler
        known: Callable[[list[FrozenTrial]], list[FrozenTrial]] = _with_all_constraints
        informative: Callable[[Sequence[FrozenTrial]], bool] = bool
        if problem.curve_score:
            known = partial(_thinned, sign=sign_of(problem.directions[0]))
        elif has_internals:
            made = partial(_divergence_sampler, problem.space)
            known = partial(_with_diverged, directions=problem.directions)
            informative = _have_differences
        if has_internals:
            known = partial(_with_absent_values, AbsentValues(problem.space), known)
        sampler = partial(self._sampler, made, needed)
        return StudyProposer(
            problem, seed, sampler, usable=known, max_draws=2, startup_count=needed, informative=informative
        )

    def _curve_sampler(
        self, space: Space, startup_count: int, curves: Mapping[int, LearningCurve], seed: int
    ) -> GPSampler:
        from search.samplers.optuna.gp.curve_gp_sampler import CurveGpSampler  # noqa: PLC0415 - imports torch

        return self._sampler(partial(CurveGpSampler, curves, space=space), startup_count, seed)

    def _sampler(self, make: Callable[..., GPSampler], startup_count: int, seed: int) -> GPSampler:
        return without_warning(
            make,
            seed=seed,
            n_startup_trials=startup_count,
            deterministic_objective=self.deterministic_objective,
            warn_independent_sampling=False,
        )


def _continuous_sampler(space: Space, **options: Any) -> GPSampler:
    from search.samplers.optuna.gp.sampler import ContinuousGpSampler  # noqa: PLC0415 - imports torch

    return ContinuousGpSampler(space=space, **options)


def _divergence_sampler(space: Space, **options: Any) -> GPSampler:
    from search.samplers.optuna.gp.sampler import DivergenceGpSampler  # noqa: PLC0415 - imports torch

    return DivergenceGpSampler(space=space, **options)


def _with_absent_values(
    absent: AbsentValues, known: Callable[[list[FrozenTrial]], list[FrozenTrial]], trials: list[FrozenTrial]
) -> list[FrozenTrial]:
    return absent.added_to(known(trials))


def models_curves(problem: Problem) -> bool:
    """Whether what early stopping compares are values of the only objective on the way to the end."""
    return problem.has_curve_score and problem.compares_objective and not problem.constrained


def _with_diverged(trials: list[FrozenTrial], directions: Sequence[Direction]) -> list[FrozenTrial]:
    """A trial that diverged counts as completed, with an infinitely bad value of each objective."""
    values = [sign_of(direction) * math.inf for direction in directions]
    return [with_value(trial, *values) if is_diverged(trial) else trial for trial in _with_all_constraints(trials)]


def _have_differences(trials: Sequence[FrozenTrial]) -> bool:
    """Whether those that report numbers differ, by a value or a violation: see `DivergenceGpSampler`."""
    known = [(trial.values, trial.constraints) for trial in trials if all(map(math.isfinite, trial.values))]
    return any(one != known[0] for one in known)


def _thinned(trials: list[FrozenTrial], sign: int) -> list[FrozenTrial]:
    """The best trials, and every n-th of the others by rank, at most MAX_SCORED_TRIALS; running ones are kept."""
    known = _with_all_constraints(trials)
    ranked = sorted((sign * trial.values[0], trial.number) for trial in known if trial.values)
    half = MAX_SCORED_TRIALS // 2
    kept = {number for _, number in [*ranked[:half], *ranked[half :: stride(len(ranked) - half, half)]]}
    return [trial for trial in known if not trial.values or trial.number in kept]


def _with_all_constraints(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Leave out completed trials without known violations, if other trials have known ones."""
    count = max((len(trial.constraints) for trial in trials), default=0)
    return [trial for trial in trials if not trial.values or len(trial.constraints) == count]
