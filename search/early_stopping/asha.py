"""Asynchronous successive halving (Li et al., 2020) that only ever stops, as Optuna's SuccessiveHalvingPruner does."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.base import RuleOptions, compared, if_finite
from search.early_stopping.rule import Peers, Standing, Verdict
from search.problem import Direction

_FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


class Asha(RuleOptions):
    """A trial goes on at a rung if its value is in the best `1 / reduction_factor` of all that have reached the rung.

    Among fewer than `reduction_factor` trials only the best goes on. The rungs are the steps
    `min_step * reduction_factor ** (min_early_stopping_rate + i)`, i = 0, 1, 2, ...

    `bootstrap_count`: so many must have reached a rung before a trial passes it; those until then end there.
    """

    rule: Literal["asha"] = "asha"
    min_step: Annotated[int, Field(ge=1)] = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 3
    min_early_stopping_rate: Annotated[int, Field(ge=0, le=50)] = 0
    bootstrap_count: Annotated[int, Field(ge=0)] = 0

    def milestones(self, previous_step: int | None, step: int) -> list[int]:
        rungs = []
        rung = self.min_step * self.reduction_factor**self.min_early_stopping_rate
        while rung <= step:
            if previous_step is None or previous_step < rung:
                rungs.append(rung)
            rung *= self.reduction_factor
        return rungs

    def judge(
        self,
        *,
        metric: str,
        direction: Direction,
        milestone: int,
        step: int,
        curve: Mapping[int, float],
        peers: Peers,
        completed_count: int | None = None,  # noqa: ARG002
    ) -> Verdict | None:
        value = curve.get(step)
        if value is None:
            return None
        standing = peers.standing(value, direction)
        count = standing.count + 1
        last_to_pass = max(count // self.reduction_factor, 1) - 1
        passes = standing.better_count <= last_to_pass
        cutoff = _cutoff(value, standing, last_to_pass, peers, direction)
        return Verdict(
            stop=count <= self.bootstrap_count or not passes,
            rule=self.rule,
            step=step,
            milestone=milestone,
            value=value,
            cutoff=if_finite(cutoff) if standing.count else None,
            compared_count=standing.count,
            reason=self._reason(metric, step, milestone, compared(value, cutoff), count),
        )

    def _reason(self, metric: str, step: int, rung: int, comparison: tuple[str, str], count: int) -> str:
        value, relation = comparison
        what = f"{metric} {value} at step {step}"
        if count <= self.bootstrap_count:
            needed = self.bootstrap_count + 1
            return f"rung {rung} lets nobody pass until {needed} trials have reached it, and {what} is number {count}"
        if count == 1:
            return f"{what} is the first to reach rung {rung}"
        return f"{what} is {relation}, the cutoff of {self._best_of(count)} trials at rung {rung}"

    def _best_of(self, count: int) -> str:
        fraction = _FRACTIONS.get(self.reduction_factor, f"1/{self.reduction_factor}")
        return f"the best {fraction} of {count}" if count >= self.reduction_factor else f"the best of {count}"


def _cutoff(value: float, standing: Standing, place: int, peers: Peers, direction: Direction) -> float:
    """The value in that place of the peers' and this one, which stands before those that equal it."""
    if place == standing.better_count:
        return value
    return peers.value_at(place if place < standing.better_count else place - 1, direction)
