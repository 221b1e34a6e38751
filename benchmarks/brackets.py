"""What weighted brackets of Hyperband are worth: shares that follow from how ranks have predicted.

The problems, the simulated time and its budget are those of `benchmarks.search`, but the searches run in this process,
and the budget is that of five full trainings on each worker, or `--trainings`. The variants:

- `drawn`: Hyperband, with the same shares, and the brackets drawn from the seed. (The rule itself takes them from the
  trial's number alone, so all searches have the same sequence.) The others are compared with it.
- `hyperband`: the rule as it is by default.
- `weighted`: the rule with `weighted: true`.
- `bracket N`: all trials are in that bracket.

Printed is the median regret (the best value less the known minimum), how many trials each bracket had, and, after half
of the budget and at its end, the regret divided by that of `drawn`: the geometric mean over the seeds with its 95 %
bootstrap interval. Below 1 the variant is better.

    python -m benchmarks.brackets [--problems curves misleading ...] [--variants weighted ...] [--seeds 16]
                                  [--workers 4] [--trainings 5] [--promote]
"""

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from benchmarks.harness.local_search import LocalSearch
from benchmarks.harness.problems import prepared
from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.search_port import MIN_STEP, REDUCTION_FACTOR
from benchmarks.harness.simulation import simulate, whole_seconds
from benchmarks.search import Regrets
from search.early_stopping import InMemoryHistory
from search.early_stopping.bracket import Bracket, CompletedTrials
from search.early_stopping.rules.hyperband import Hyperband

PROBLEMS = "curves", "mf_hartmann", "misleading", "crossing", "power_law", "plateau"
VARIANTS = "drawn", "hyperband", "weighted", "bracket 0", "bracket 1", "bracket 2", "bracket 3"
SHARES = (0.5, 1.0)
LEAST_REGRET = 1e-3
"""Smaller ones are equal: on some problems the noise of the last value is larger."""
Values = NDArray[np.float64]


class Variant(Hyperband):
    """Hyperband that counts the trials of each bracket. `learns`: shares follow from what has completed.

    `only`: all trials are in that bracket.
    """

    learns: bool = True
    only: int | None = None
    _counts: dict[int, int] = PrivateAttr(default_factory=dict)

    def draw_bracket(self, number: int, seed: int, completed: CompletedTrials) -> Bracket | None:
        drawn = super().draw_bracket(number, seed, completed if self.learns else InMemoryHistory())
        if drawn is not None and self.only is not None:
            drawn = replace(drawn, number=min(self.only, len(self.first_rungs) - 1))
        own = self.bracket_of(number, None if drawn is None else drawn.number)
        self._counts[own] = self._counts.get(own, 0) + 1
        return drawn

    def counts(self) -> list[int]:
        """The counts by bracket."""
        return [self._counts.get(bracket, 0) for bracket in range(len(self.first_rungs))]


def rule_of(variant: str, max_step: int, *, promote: bool) -> Variant:
    return Variant(
        max_step=max_step,
        min_step=MIN_STEP,
        reduction_factor=REDUCTION_FACTOR,
        promote=promote,
        extra_count=int(promote),
        weighted=variant != "hyperband",
        learns=variant == "weighted",
        only=int(variant.split()[1]) if variant.startswith("bracket") else None,
    )


def regrets(name: str, variant: str, options: argparse.Namespace) -> tuple[Regrets, Values]:
    """A row for each seed, and the mean number of trials by bracket."""
    found, counts = [], []
    for seed in range(options.seeds):
        task = prepared(name)
        rule = rule_of(variant, task.steps, promote=options.promote)
        search = LocalSearch(task, rule, seed, options.workers)
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
        columns.append(f"{share:4.0%}: {geometric_mean(known)}")
    return "   ".join(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS[1:3])
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
