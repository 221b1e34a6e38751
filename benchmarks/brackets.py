"""What other brackets of Hyperband would be worth: shared rungs, and shares that follow from how ranks have predicted.

The problems, the simulated time and its budget are those of `benchmarks.search`, but the searches run in this process,
and the budget is that of five full trainings on each worker, or `--trainings`. The variants:

- `drawn`: Hyperband, with the same shares, and the brackets drawn from the seed. (The rule itself takes them from the
  trial's number alone, so all searches have the same sequence.) The others are compared with it.
- `hyperband`: the rule as it is.
- `shared`: a trial is compared with those of all brackets at a rung. It also counts at the rungs below its first one.
- `weighted`: a bracket's share is Hyperband's, times a weight: the rank agreement of its first rung with the end, over
  the pairs of completed trials so far. Agreement is 1 less twice the share of pairs in another order; PRIOR_PAIRS pairs
  have PRIOR_AGREEMENT before, at which the weight is 1, and it grows with the power POWER. No share is below LEAST.
- `both`: `shared` and `weighted`.
- `bracket N`: all trials are in that bracket.

Printed is the median regret (the best value less the known minimum), how many trials each bracket had, and, after half
of the budget and at its end, the regret divided by that of `drawn`: the geometric mean over the seeds with its 95 %
bootstrap interval. Below 1 the variant is better.

    python -m benchmarks.brackets [--problems curves misleading ...] [--variants shared both ...] [--seeds 16]
                                  [--workers 4] [--trainings 5] [--promote]
"""

import argparse
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from benchmarks.harness.local_search import LocalSearch
from benchmarks.harness.problems import prepared
from benchmarks.harness.searchers import MIN_STEP, REDUCTION_FACTOR
from benchmarks.search import Regrets, simulate, whole_seconds
from search.early_stopping import History, InMemoryHistory, MetricReport, Verdict
from search.early_stopping.history import ALL
from search.early_stopping.rules.hyperband import Hyperband

PROBLEMS = "curves", "mf_hartmann", "misleading", "crossing", "power_law", "plateau"
VARIANTS = "drawn", "hyperband", "shared", "weighted", "both", "bracket 0", "bracket 1", "bracket 2", "bracket 3"
SHARES = (0.5, 1.0)
LEAST_REGRET = 1e-3
"""Smaller ones are equal: on some problems the noise of the last value is larger."""
PRIOR_PAIRS, PRIOR_AGREEMENT = 10, 0.5
POWER = 4
LEAST = 0.02
RESAMPLES = 2000
Values = NDArray[np.float64]


class Variant(Hyperband):
    """Hyperband whose brackets are assigned by `begin`."""

    shares_rungs: bool = False
    _brackets: dict[int, int] = PrivateAttr(default_factory=dict)

    def begin(self, number: int, bracket: int) -> None:
        self._brackets[number] = bracket

    def bracket_of(self, number: int) -> int:
        return self._brackets[number]

    def pool_of(self, number: int) -> int:
        return ALL if self.shares_rungs else super().pool_of(number)

    def pools_at(self, rung: int) -> Sequence[int]:
        return (ALL,) if self.shares_rungs else list(super().pools_at(rung))

    def decide(self, report: MetricReport, history: History) -> Iterator[Verdict]:
        if self.shares_rungs and report.step in self.first_rungs and report.step < self.first_rung(report.number):
            history.reach(report.step, report.value, ALL)
        return super().decide(report, history)

    @property
    def first_rungs(self) -> list[int]:
        """By bracket."""
        return [self._first_rung(bracket) for bracket in range(self._bracket_count)]

    @property
    def shares(self) -> Values:
        ends = np.array([0, *self._share_ends])
        shares: Values = np.diff(ends) / ends[-1]
        return shares

    def counts(self) -> list[int]:
        """How many trials each bracket has."""
        brackets = list(self._brackets.values())
        return [brackets.count(bracket) for bracket in range(self._bracket_count)]


@dataclass
class Assignment:
    """Which bracket a new trial gets: a function of the history and its number."""

    variant: str
    rule: Variant
    history: InMemoryHistory
    seed: int

    def begin(self, number: int) -> None:
        self.rule.begin(number, self._bracket(number))

    def _bracket(self, number: int) -> int:
        if self.variant.startswith("bracket"):
            return min(int(self.variant.split()[1]), len(self.rule.shares) - 1)
        if self.variant == "hyperband":
            return Hyperband.bracket_of(self.rule, number)
        shares = self.rule.shares
        if self.variant in ("weighted", "both"):
            weighted = shares * weights(self.rule, self.history)
            shares = np.maximum(weighted / weighted.sum(), LEAST)
        position = zlib.crc32(f"hyperband_{self.seed}_{number}".encode()) / 2**32
        return int(np.searchsorted(np.cumsum(shares / shares.sum())[:-1], position, side="right"))


def weights(rule: Variant, history: InMemoryHistory) -> Values:
    """By bracket; 1 where nothing is known, and for the bracket whose trials all run to their ends."""
    last, rungs = rule.max_step, rule.first_rungs
    completed = [curve for curve in history.curves.values() if last in curve]
    first, second = np.triu_indices(len(completed), 1)
    ends = np.array([curve[last] for curve in completed])
    found = np.ones(len(rungs))
    for bracket, rung in enumerate(rungs):
        if rung < last:
            values = np.array([curve[rung] for curve in completed])
            signs = np.sign(values[first] - values[second]) * np.sign(ends[first] - ends[second])
            agreement = (signs.sum() + PRIOR_AGREEMENT * PRIOR_PAIRS) / (len(signs) + PRIOR_PAIRS)
            found[bracket] = (max(0.0, agreement) / PRIOR_AGREEMENT) ** POWER
    return found if found.any() else np.ones(len(rungs))


def regrets(name: str, variant: str, options: argparse.Namespace) -> tuple[Regrets, Values]:
    """A row for each seed, and the mean number of trials by bracket."""
    found, counts = [], []
    for seed in range(options.seeds):
        task = prepared(name)
        rule = Variant(
            max_step=task.steps, min_step=MIN_STEP, reduction_factor=REDUCTION_FACTOR,
            promote=options.promote, extra_count=int(options.promote), shares_rungs=variant in ("shared", "both"),
        )  # fmt: skip
        search = LocalSearch(task, rule, seed, options.workers)
        search.begin = Assignment(variant, rule, search.history, seed).begin
        seconds = options.trainings * whole_seconds(task)
        course = simulate(task, search.ask, seconds=seconds, workers=options.workers)
        found.append([course.after_seconds(share * seconds) - task.least for share in SHARES])
        counts.append(rule.counts())
    return np.array(found), np.mean(counts, axis=0)


def log_ratios(found: Regrets, drawn: Regrets) -> Values:
    """A seed without a completed trial by then says nothing: NaN."""
    both = np.isfinite(found) & np.isfinite(drawn)
    logs = np.log(np.maximum(found, LEAST_REGRET)) - np.log(np.maximum(drawn, LEAST_REGRET), where=both, out=drawn * 0)
    return np.where(both, logs, np.nan)


def shown(logs: Values) -> str:
    """The geometric means of the columns, with bootstrap intervals over the rows."""
    columns = []
    for share, column in zip(SHARES, logs.T, strict=True):
        known = column[np.isfinite(column)]
        if not len(known):
            columns.append(f"{share:4.0%}: no trial has completed")
            continue
        means = np.random.default_rng(0).choice(known, (RESAMPLES, len(known))).mean(axis=1)
        low, high = np.exp(np.quantile(means, (0.025, 0.975)))
        columns.append(f"{share:4.0%}: {np.exp(known.mean()):.2f} ({low:.2f} to {high:.2f})")
    return "   ".join(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS[1:5])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--trainings", type=float, default=5)
    parser.add_argument("--promote", action="store_true")
    options = parser.parse_args()
    whole: dict[str, list[Values]] = {variant: [] for variant in options.variants}
    for name in options.problems:
        drawn, counts = regrets(name, "drawn", options)
        median = np.median(drawn[:, -1])
        print(f"\n{name}, {options.workers} workers: {median:.4f} drawn, trials {counts.round()}", flush=True)
        for variant in options.variants:
            found, counts = regrets(name, variant, options)
            whole[variant].append(log_ratios(found, drawn))
            median = np.median(found[:, -1])
            print(f"  {variant:10} {median:8.4f}   {shown(whole[variant][-1])}   trials {counts.round()}", flush=True)
    print("\nall problems")
    for variant, logs in whole.items():
        print(f"  {variant:10} {'':8}   {shown(np.concatenate(logs))}")


if __name__ == "__main__":
    main()
