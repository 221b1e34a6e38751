"""With `limits.max_trials: null`, whether something else ends the experiment, and its search before confirmations."""

from collections.abc import Iterator, Sequence

from search.mistakes import Mistake, listed

MAX_TRIALS = ("limits", "max_trials")
_BUDGETS = frozenset({"limits.max_seconds", "limits.max_gpu_hours"})
"""These end the experiment in any case. Other limits end its search, and its winners may be confirmed then."""


def mistakes_without_max_trials(other_limits: Sequence[str], *, is_confirmed: bool) -> Iterator[Mistake]:
    """`other_limits` are the fields that may end the search of a sampler that does not end by itself."""
    if not other_limits:
        yield Mistake(
            MAX_TRIALS,
            "null means any number of trials, and nothing else ends the experiment: set limits.max_seconds, "
            "limits.max_gpu_hours, limits.no_improvement or the target of an objective, or a number here; or try a "
            "finite space as a whole, with search: {sampler: grid} or {sampler: brute_force}",
        )
    elif is_confirmed and _BUDGETS.issuperset(other_limits):
        ends = "ends" if len(other_limits) == 1 else "end"
        yield Mistake(
            ("confirm",),
            f"confirms nothing: {listed(other_limits)} {ends} the experiment before its winners run again. Something "
            "must end its search first: set limits.max_trials, limits.no_improvement or a target; or leave confirm out",
        )


def warnings_without_max_trials(other_limits: Sequence[str], *, limits_failures: bool) -> Iterator[Mistake]:
    """An end by results may never come. `limits_failures`: `failures.max_failed_trials` is set."""
    if not other_limits or not _BUDGETS.isdisjoint(other_limits):
        return
    if "limits.no_improvement" in other_limits:
        if not limits_failures:
            yield Mistake(
                MAX_TRIALS,
                "is null, and failed trials do not count for limits.no_improvement: if all of them fail, the "
                "experiment may run without an end; failures.max_failed_trials or limits.max_seconds ends it then",
            )
    else:
        yield Mistake(
            MAX_TRIALS,
            "is null, so the experiment runs until a trial reaches the target, and without an end if none does; "
            "limits.max_seconds ends it, too",
        )
