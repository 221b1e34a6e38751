"""How many trials of a small finite space pass until the best one: `auto`, and `brute_force`, which learns nothing.

The spaces are parts of the tables of `benchmarks.harness.training_tables`: for each table and seed, values of its
parameters drawn at random until their combinations are about as many as wanted. Both samplers try all of them once, so
what differs is the order. A trial's value is the mean over the seeds of the training.

Printed is for each size the trials until the best configuration as a share of all (the mean), and those of `auto`
divided by those of `brute_force`: the geometric mean with its 95 % bootstrap interval. Below 1 `auto` is better.

    python -m benchmarks.small_spaces [--sizes 12 25 50 100] [--seeds 5] [--workers 1] [--tables "hpobench car" ...]
"""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness.ratios import geometric_mean
from benchmarks.harness.sequential import Params, SequentialTask, by_paceline
from benchmarks.harness.training_tables import NAMES, TrainingTable, table

HERE, PEER = "auto", "brute_force"
LEAST_SHARE = 0.6
"""A table that has fewer combinations than this share of the wanted ones is left out."""


@dataclass(frozen=True)
class TablePart:
    """`places` has the places on the table's grids that are left of each parameter."""

    table: TrainingTable
    places: Mapping[str, Sequence[int]]

    @property
    def size(self) -> int:
        return int(np.prod([len(places) for places in self.places.values()]))

    @property
    def space(self) -> dict[str, Any]:
        """A choice stays one; the values of a number become whole numbers, in their order."""
        return {
            name: {"type": "categorical", "choices": [str(place) for place in places]}
            if self.table.space[name]["type"] == "categorical"
            else {"type": "int", "low": 0, "high": len(places) - 1}
            for name, places in self.places.items()
            if len(places) > 1
        }

    def loss(self, params: Params) -> float:
        places = []
        for name, left in self.places.items():
            value = params.get(name, 0)
            places.append(str(value if isinstance(value, str) else left[int(value)]))
        return float(self.table.losses["".join(places)].mean())


def part_of(whole: TrainingTable, size: int, chance: np.random.Generator) -> TablePart:
    """A part with at most `size` configurations to which no value can be added."""
    orders = {name: chance.permutation(len(grid)).tolist() for name, grid in whole.grids.items()}
    counts = dict.fromkeys(orders, 1)
    while True:
        total = int(np.prod([*counts.values()]))
        larger = [
            name for name, count in counts.items() if count < len(orders[name]) and total // count * (count + 1) <= size
        ]
        if not larger:
            return TablePart(whole, {name: sorted(orders[name][:count]) for name, count in counts.items()})
        counts[str(chance.choice(larger))] += 1


def trials_until_best(part: TablePart, sampler: str, seed: int, workers: int) -> int:
    losses = by_paceline(sampler, SequentialTask(part.space, part.loss), seed, part.size, workers=workers)
    return int(np.argmin(np.array(losses, dtype=float))) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 25, 50, 100])
    parser.add_argument("--tables", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'size':>4}  {HERE}  {PEER}  {HERE} / {PEER}")
    for size in options.sizes:
        shares = []
        for number, seed in product(range(len(options.tables)), range(options.seeds)):
            part = part_of(table(options.tables[number]), size, np.random.default_rng([seed, number]))
            if part.size >= LEAST_SHARE * size:
                trials = [trials_until_best(part, sampler, seed, options.workers) for sampler in (HERE, PEER)]
                shares.append(np.array(trials) / part.size)
        here, peer = np.array(shares).T
        ratio = geometric_mean(np.log(here / peer))
        print(f"{size:4}  {here.mean():.2f}  {peer.mean():11.2f}  {ratio}  {len(shares)} searches", flush=True)


if __name__ == "__main__":
    main()
