"""With `limits.max_trials: null`, whether something else ends the experiment, and its search before confirmations."""

from collections.abc import Iterator, Sequence

from search.mistakes import Mistake, listed

MAX_TRIALS = ("limits", "max_trials")
_END_CONFIRMATIONS = frozenset({"limits.max_seconds", "limits.max_gpu_hours"})
"""These end the experiment. Other limits end its search, and its winners may be confirmed then."""


def mistakes_without_max_trials(other_limits: Sequence[str], *, is_confirmed: bool) -> Iterator[Mistake]:
    """`other_limits` are the fields that may end the search of a sampler that does not end by itself."""
    if not other_limits:
        yield Mistake(
            MAX_TRIALS,
            "null means any number of trials, and nothing else ends the experiment: set limits.max_seconds, "
            "limits.max_gpu_hours, limits.no_improvement or the target of an objective, or a number here; or try a "
            "finite space as a whole, with search: {sampler: grid} or {sampler: brute_force}",
        )
    elif is_confirmed and _END_CONFIRMATIONS.issuperset(other_limits):
        ends = "ends" if len(other_limits) == 1 else "end"
        yield Mistake(
            ("confirm",),
            f"confirms nothing: {listed(other_limits)} {ends} the experiment before its winners run again. Something "
            "must end its search first: set limits.max_trials, limits.no_improvement or a target; or leave confirm out",
        )


def warnings_without_max_trials(other_limits: Sequence[str]) -> Iterator[Mistake]:
    """A target is the only end that may never come, however long trials run."""
    if other_limits and all(field.startswith("objectives.") for field in other_limits):
        yield Mistake(
            MAX_TRIALS,
            "is null, so the experiment runs until a trial reaches the target, and without an end if none does; "
            "limits.max_seconds ends it, too",
        )
