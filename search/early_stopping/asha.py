"""Asynchronous successive halving (Li et al., 2020) that only ever stops, as Optuna's SuccessiveHalvingPruner does."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from search.early_stopping.base import RuleOptions, compared, if_finite
from search.early_stopping.rule import Peer, Verdict
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
        peers: Sequence[Peer],
        completed_count: int | None = None,  # noqa: ARG002
    ) -> Verdict | None:
        value = curve.get(step)
        if value is None:
            return None
        ranked = sorted((value, *(peer.value for peer in peers)), reverse=direction == "maximize")
        passing_count = max(len(ranked) // self.reduction_factor, 1)
        cutoff = ranked[passing_count - 1]
        waiting = len(ranked) <= self.bootstrap_count
        return Verdict(
            stop=waiting or ranked.index(value) > ranked.index(cutoff),
            rule=self.rule,
            step=step,
            milestone=milestone,
            value=value,
            cutoff=if_finite(cutoff) if peers else None,
            compared_count=len(peers),
            reason=self._reason(metric, step, milestone, compared(value, cutoff), len(ranked)),
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
