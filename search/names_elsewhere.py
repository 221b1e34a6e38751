"""What Ray Tune, Optuna and others call samplers, stopping rules and their options, and what these are called here."""

import re
from collections.abc import Collection, Mapping, Sequence

from search.mistakes import instead_of, shortened

SAMPLERS: Mapping[str, str] = {
    "tpe": "tpe",
    "optuna": "tpe",
    "hyperopt": "tpe",
    "tpebohb": "tpe",
    "gp": "gp",
    "ax": "gp",
    "botorch": "gp",
    "bayesopt": "gp",
    "bayesian": "gp",
    "bayes": "gp",
    "cmaes": "cmaes",
    "cma": "cmaes",
    "nsgaii": "nsga2",
    "nsgaiii": "nsga3",
    "qmc": "qmc",
    "sobol": "qmc",
    "random": "random",
    "randomsearch": "random",
    "basicvariant": "random",
    "grid": "grid",
    "gridsearch": "grid",
    "bruteforce": "brute_force",
}
"""Names elsewhere as `_essence` writes them."""
RULES: Mapping[str, str] = {
    "asha": "asha",
    "asynchyperband": "asha",
    "successivehalving": "asha",
    "hyperband": "hyperband",
    "hyperbandforbohb": "hyperband",
    "median": "median",
    "medianstopping": "median",
    "percentile": "percentile",
    "threshold": "threshold",
    "wilcoxon": "wilcoxon",
    "patient": "patient",
    "nop": "none",
    "fifo": "none",
    "populationbasedtraining": "pbt",
    "pbt": "pbt",
    "pb2": "pbt",
}
"""As `SAMPLERS`."""
RULE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "grace_period": ("min_step", "n_warmup_steps"),
    "min_resource": ("min_step",),
    "max_t": ("max_step",),
    "max_resource": ("max_step",),
    "mode": ("direction",),
    "perturbation_interval": ("interval",),
    "hyperparam_mutations": ("perturb",),
    "quantile_fraction": ("quantile",),
    "min_samples_required": ("n_min_trials",),
}
"""Options of Ray Tune's and Optuna's rules, by the names that they have here, of which a rule has at most one."""
NO_RULE_OPTIONS: Mapping[str, str] = {
    "brackets": "is not an option here: {rule: hyperband} has several brackets, which follow from max_step",
    "time_attr": "is called step_metric here, at the top of the specification",
    "type": "is called rule here, as in {rule: asha}",
    "name": "is called rule here, as in {rule: asha}",
}
"""Options of other tuners' rules that no rule has here."""

MAX_LENGTH = 50
_KINDS = re.compile("(sampler|pruner|scheduler|search|rule|generator)$")


def called_here(name: str, names: Mapping[str, str], known: Collection[str]) -> str | None:
    """What a class or word of another tuner is called here; None if it is not known."""
    if len(name) > MAX_LENGTH:
        return None
    ours = names.get(_essence(name)) or names.get(_KINDS.sub("", _essence(name)))
    return ours if ours in known else None


def unknown_name(what: str, name: str, names: Mapping[str, str], known: Sequence[str]) -> str:
    """The message for a name of this kind that is not known, with the one that is meant, or those that there are."""
    meant = called_here(name, names, known)
    advice = f"did you mean {meant}?" if meant else instead_of(name, known, "available")
    return f"unknown {what} '{shortened(name)}'; {advice}"


def _essence(name: str) -> str:
    """In lower case, without what stands between words: `TPESampler` is `tpesampler`."""
    return re.sub("[^a-z0-9]", "", name.lower())
