"""Confirmed configurations: the mean of runs with other seeds, their ranking, and whether the leader leads by luck.

The value for which a configuration was chosen is too good on average, because it was chosen for it. It is in no mean.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from search.numbers_in_messages import resolved
from search.problem import Direction, sign_of
from search.thread_safe_import import import_modules

LEVEL = 0.05
"""Below this p-value a lead is more than noise."""


@dataclass(frozen=True)
class Confirmed:
    """A configuration by the number of the trial that it was chosen for, with the values of its confirmations.

    `chosen_for` is that trial's own value. `failed_count` of its confirmations failed or were infeasible.
    """

    number: int
    chosen_for: float
    values: tuple[float, ...]
    failed_count: int = 0

    @property
    def n(self) -> int:
        return len(self.values)

    @cached_property
    def mean(self) -> float | None:
        """The mean; None without values. Correctly rounded, so the same for the same values in any order."""
        return float(statistics.mean(self.values)) if self.values else None

    @cached_property
    def standard_error(self) -> float | None:
        """Standard error of the mean, the same in any order; None with fewer than two values or on overflow."""
        if self.n < 2:  # noqa: PLR2004 - no variance
            return None
        try:
            return statistics.stdev(self.values) / math.sqrt(self.n)
        except OverflowError:
            return None


@dataclass(frozen=True)
class Lead:
    """How far the first of a ranking is ahead of the second: Welch's t-test of the two means, two-sided.

    `standard_error` is that of the difference. `p_value` is None where the values do not vary: then any difference is
    more than noise.
    """

    difference: float
    standard_error: float
    degrees_of_freedom: float | None
    p_value: float | None

    @property
    def is_within_noise(self) -> bool:
        return self.difference == 0 if self.p_value is None else self.p_value >= LEVEL


def ranked(found: Sequence[Confirmed], direction: Direction) -> list[Confirmed]:
    """The best first: those with the fewest failures, then by the mean. Those without a value last.

    Equal ones are in the order of the search: so its best trial is the first one, too, if no confirmation has a value.
    """
    sign = sign_of(direction)

    def rank(one: Confirmed) -> tuple[bool, int, float, float, int]:
        return one.mean is None, one.failed_count, sign * (one.mean or 0), sign * one.chosen_for, one.number

    return sorted(found, key=rank)


def untested_in(ranking: Sequence[Confirmed]) -> list[int]:
    """The numbers of those of which no confirmation says anything. With such a one the ranking has no winner."""
    return [one.number for one in ranking if not one.n and not one.failed_count]


def lead_in(ranking: Sequence[Confirmed], direction: Direction) -> Lead | None:
    """The lead of the first over the second.

    None without a second, if one of them has no standard error, and if the second failed more often, which is no matter
    of means.
    """
    if len(ranking) < 2 or ranking[0].failed_count != ranking[1].failed_count:  # noqa: PLR2004 - nothing to compare
        return None
    first, second = ranking[:2]
    if first.mean is None or first.standard_error is None or second.mean is None or second.standard_error is None:
        return None
    difference = sign_of(direction) * (second.mean - first.mean)
    error = math.hypot(first.standard_error, second.standard_error)
    if not math.isfinite(difference + error):
        return None
    if error == 0:
        return Lead(difference, error, None, None)
    share = (first.standard_error / error) ** 2
    freedom = 1 / (share**2 / (first.n - 1) + (1 - share) ** 2 / (second.n - 1))
    return Lead(difference, error, freedom, _two_sided(difference / error, freedom))


def verdict_of(ranking: Sequence[Confirmed], lead: Lead | None) -> str:
    """What a ranking with one configuration or more shows, as a sentence."""
    first, stays = ranking[0], "the best trial is that of the search"
    if first.mean is None:
        return f"no confirmation has ended with a value that counts: {stays}"
    error = "" if first.standard_error is None else f", standard error {first.standard_error:.2g}"
    parts = [one for one in (first.standard_error, lead and lead.difference) if one]
    found = f"trial {first.number} has mean {resolved(first.mean, *parts)} (n={first.n}{error})"
    if untested := untested_in(ranking):
        which = " and ".join(f"trial {number}" for number in untested)
        return f"no confirmation of {which} has ended with a value that counts: {stays}; {found}"
    if len(ranking) == 1:
        failed = f"; {first.failed_count} of its confirmations failed or broke a constraint"
        return found + failed if first.failed_count else found
    return f"{found}{_compared(first, ranking[1], lead)}"


def _compared(first: Confirmed, second: Confirmed, lead: Lead | None) -> str:
    if lead is None:
        return f"; {_why_no_test(first, second)}"
    ahead = f", {lead.difference + 0.0:.3g} ahead of trial {second.number}"
    if lead.p_value is None:
        return f"{ahead}; no value varies with the seed: does the training function use config.seed?"
    test = f"Welch's t-test, p={lead.p_value:.2g}"
    if lead.is_within_noise:
        return f"{ahead}, which is within noise ({test}): either may be the better one"
    return f"{ahead}, which is more than noise ({test})"


def _why_no_test(first: Confirmed, second: Confirmed) -> str:
    if first.failed_count != second.failed_count:
        failed = f"{first.failed_count} of its confirmations failed or broke a constraint, and {second.failed_count}"
        return f"{failed} of those of the next one, trial {second.number}"
    if min(first.n, second.n) < 2:  # noqa: PLR2004 - no variance
        return f"too few confirmations have ended to compare it with trial {second.number}"
    return f"its values, or those of trial {second.number}, are too far apart to compare the two"


def _two_sided(t: float, freedom: float) -> float:
    """The probability of a t at least as far from zero, under Student's distribution."""
    import_modules("scipy.special")
    from scipy.special import stdtr  # noqa: PLC0415 - loaded when it is needed

    return float(2 * stdtr(freedom, -abs(t)))
