"""Names of Ray Tune, Optuna and others for what a specification names differently."""

from collections.abc import Mapping

from search.mistakes import UNKNOWN, Mistake, Path
from service.specification.hints.path_patterns import ANY, matches

_OBJECTIVES = "is part of objectives here, as in [{metric: loss, direction: minimize}]"
_BEST = "is part of objectives here: with [{metric: …, direction: …, report: best}] a trial keeps its best checkpoint"
_REPORT = "is called report here: newest or best"
_LIMITS = {
    "num_samples": "max_trials",
    "n_trials": "max_trials",
    "max_concurrent_trials": "parallelism",
    "n_jobs": "parallelism",
    "time_budget_s": "max_seconds",
    "timeout": "max_seconds",
}
_TOP: Mapping[str, str] = {
    **{name: f"is called limits.{ours} here" for name, ours in _LIMITS.items()},
    "param_space": "is called space here",
    "search_space": "is called space here",
    "parameters": "is called space here",
    "points_to_evaluate": "is called enqueue here",
    "metric": _OBJECTIVES,
    "mode": _OBJECTIVES,
    "direction": _OBJECTIVES,
    "directions": _OBJECTIVES,
    "scheduler": "is called early_stopping here, as in {rule: asha}",
    "pruner": "is called early_stopping here, as in {rule: asha}",
    "search_alg": "is called search here, as in {sampler: tpe}",
    "sampler": "is called search here, as in {sampler: tpe}",
}
_PARAMETER = {
    "min": "is called low here",
    "max": "is called high here",
    "lower": "is called low here",
    "upper": "is called high here",
    "q": "is called step here",
    "values": "is called choices here",
    "categories": "is called choices here",
    "grid_search": "is called choices here, of the type categorical; search: {sampler: grid} tries all of them",
    "if": "is called when here, as in {optimizer: sgd}",
    "condition": "is called when here, as in {optimizer: sgd}",
    "distribution": "is called type here: float, int or categorical",
}
_OBJECTIVE = {
    "mode": "is called direction here: minimize or maximize",
    "goal": "is called direction here: minimize or maximize",
    "name": "is called metric here",
    "scope": _REPORT,
    "value": _REPORT,
}
_NAMES: Mapping[Path, str] = {
    **{(name,): reason for name, reason in _TOP.items()},
    **{("space", ANY, name): reason for name, reason in _PARAMETER.items()},
    **{("objectives", ANY, name): reason for name, reason in _OBJECTIVE.items()},
    **{("limits", name): f"is called {ours} here" for name, ours in _LIMITS.items()},
    ("search", "type"): "is called sampler here, as in {sampler: tpe}",
    ("search", "name"): "is called sampler here, as in {sampler: tpe}",
    ("failures", "max_failures"): "is called max_retries here",
    ("checkpoints", "num_to_keep"): "is called keep here",
    ("checkpoints", "checkpoint_score_attribute"): _BEST,
    ("checkpoints", "checkpoint_score_order"): _BEST,
    ("checkpoints", "checkpoint_frequency"): "is not supported: the training function says which reports save one",
}
"""None of these is a field of the specification."""


def with_tuners_name(mistake: Mistake) -> Mistake:
    """For an unknown field with a name of another tuner, what to write instead; any other mistake unchanged."""
    if mistake.message != UNKNOWN:
        return mistake
    reason = next((one for pattern, one in _NAMES.items() if matches(pattern, mistake.path)), None)
    return mistake if reason is None else Mistake(mistake.path, reason)
