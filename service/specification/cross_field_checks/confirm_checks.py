"""What `confirm` requires, and what may keep it from running the winners of a search again."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from search.mistakes import Mistake
from search.space.space import Space
from service.specification.cross_field_checks.pbt_checks import NOT_WITH_PBT
from service.specification.spec_sections import SEED, ConfirmSpec, LimitsSpec

MAX_SEED = 2**31 - 1


def mistakes_in_confirm(
    confirm: ConfirmSpec,
    limits: LimitsSpec,
    keep_best_trials: int | None,
    *,
    objective_count: int,
    is_population: bool,
) -> Iterator[Mistake]:
    if objective_count > 1:
        yield Mistake(("confirm",), "works with one objective only, which ranks the trials; leave it out")
    if is_population:
        yield Mistake(("confirm",), NOT_WITH_PBT)
    if limits.max_trials is not None and limits.max_trials - confirm.trial_count < confirm.top:
        yield Mistake(
            ("confirm",),
            f"keeps {confirm.top} * {confirm.seeds} trials of limits.max_trials ({limits.max_trials}), and the"
            f" search needs {confirm.top} or more: set max_trials to at least {confirm.trial_count + confirm.top}",
        )
    if keep_best_trials is not None and keep_best_trials < confirm.top:
        yield Mistake(
            ("checkpoints", "keep_best_trials"),
            f"must be confirm.top ({confirm.top}) or more: any of these trials may be confirmed as the best",
        )


def mistakes_in_seed(space: Space, config: Mapping[str, JsonValue]) -> Iterator[Mistake]:
    """`confirm` gives each trial a seed in `config`."""
    if SEED in space.root:
        reason = "with confirm, config.seed is the seed of each trial: rename the parameter"
        yield Mistake(("space", SEED), reason)
    first = config.get(SEED, 0)
    if type(first) is not int or not 0 <= first <= MAX_SEED:
        reason = f"with confirm, it is the seed of the search's trials: must be a whole number from 0 to {MAX_SEED}"
        yield Mistake(("config", SEED), reason)


def warnings_about_confirm(limits: LimitsSpec) -> Iterator[Mistake]:
    for name in ("max_seconds", "max_gpu_hours"):
        if getattr(limits, name) is not None:
            yield Mistake(
                ("limits", name),
                "ends the experiment during its confirmations, too: what has not run by then is not confirmed",
            )
