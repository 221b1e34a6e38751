"""Population-based training (Jaderberg et al., 2017), one synchronous generation after the other."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from search.early_stopping.contract import SHOWN_COUNT, History, Reported, Verdict
from search.early_stopping.pause_contract import Member, Release, Waiting
from search.early_stopping.rule_base import MAX_COUNT, StoppingRule
from search.early_stopping.rules.pbt_explore import Exploring, explored
from search.space.scalars import shown
from search.space.space import Params

FEWEST_MEMBERS = 2
MOST_NAMED = 10
"""So many parameters are named in a sentence."""

LAST_STEP = "the last step of a whole training; of one without an end, a step that it never comes to"

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Pbt(StoppingRule):
    """All trials are one population. Each pauses at every multiple of `interval`, until the others are there or over.

    Then each of the worst `quantile` goes on from the newest checkpoint of a random one of the best `quantile`, with
    that one's params explored: each is drawn anew with `resample_probability`, or perturbed by `perturbation_factors`.
    The others go on as they are. No generation ends before `grace_steps`, and none at `max_step` or beyond: nobody
    waits at the end of the training, or goes on from there only to end with params that it never trained with.

    A generation is a function of the stored values at its milestone and of (seed, milestone, number).
    """

    not_replayed: ClassVar[str | None] = "changes what trials train with, which recorded curves say nothing of"
    rule: Literal["pbt"] = "pbt"
    interval: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    perturbation_factors: list[Factor] = Field(default=[0.8, 1.2], min_length=1, max_length=100)
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT, description=LAST_STEP)]

    @model_validator(mode="after")
    def _a_generation_ends(self) -> Self:
        if self._first >= self.max_step:
            raise ValueError(f"max_step must be above {self._first}, where the first generation ends")
        return self

    @property
    def pauses(self) -> bool:
        return True

    @property
    def waiting_is_losing(self) -> bool:
        return False

    @property
    def _first(self) -> int:
        return self.interval * max(-(-self.grace_steps // self.interval), 1)

    def milestones(self, report: Reported, history: History) -> list[int]:  # noqa: ARG002
        """The highest alone: what a report has jumped over is behind it.

        Trials that report at the same steps have the same milestones. Of others, those behind go on until they have
        caught up, and then meet.
        """
        before = report.previous_step
        highest = min(report.step, self.max_step - 1) // self.interval * self.interval
        return [highest] if highest >= self._first and (before is None or highest > before) else []

    def _look(self, report: Reported, milestone: int, history: History) -> Verdict:  # noqa: ARG002
        what = f"{report.metric} {report.value:.6g} at step {report.step}"
        return Verdict(
            stop=True,
            pauses=True,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=report.value,
            cutoff=None,
            compared_count=0,
            reason=f"{what} ends a generation at step {milestone}; it waits for the rest of the population",
        )

    def releases(self, waiting: Waiting) -> Iterator[Release]:
        """The next generation of those that have come least far, once nobody is left who may still come there."""
        milestones = () if waiting.others_may_come else waiting.milestones()
        if not milestones:
            return
        generation = _Generation(self, waiting, milestones[0])
        # All of them before the first is applied, which changes who waits.
        yield from [generation.release(place) for place in range(len(generation.ranked))]


class _Generation:
    def __init__(self, rule: Pbt, waiting: Waiting, milestone: int) -> None:
        sign = -1 if waiting.direction == "maximize" else 1
        self._rule, self._waiting, self._milestone = rule, waiting, milestone
        self.ranked = sorted(waiting.members(milestone), key=lambda one: (sign * one.value, one.number))
        self._count = len(self.ranked)
        self._part = max(int(self._count * rule.quantile), 1) if self._count >= FEWEST_MEMBERS else 0
        self._last_to_stay = self._count - self._part - 1

    def release(self, place: int) -> Release:
        member = self.ranked[place]
        what = f"{self._waiting.metric} {member.value:.6g} at step {self._milestone}"
        if place <= self._last_to_stay:
            return self._stay(place, f"{what} {self._why_it_stays(place)}")
        what = f"{what} is among the worst {self._part} of {self._count}"
        best = self.ranked[: self._part]
        better = [one for one in best if one.value != member.value]
        saved = [one for one in better if one.saved_step is not None]
        if not better:
            return self._stay(place, f"{what}, but the best of them are no better")
        if not saved:
            return self._stay(place, f"{what}, but the best of them saved no checkpoint ({_named(better)})")
        return self._exploit(place, what, saved)

    def _why_it_stays(self, place: int) -> str:
        if self._count < FEWEST_MEMBERS:
            return "is the only one to end a generation there"
        if place < self._part:
            return f"is among the best {self._part} of {self._count}"
        return f"is not among the worst {self._part} of {self._count}"

    def _stay(self, place: int, reason: str) -> Release:
        return self._said(place, "continue", f"{reason}; goes on as it is")

    def _exploit(self, place: int, what: str, saved: Sequence[Member]) -> Release:
        member = self.ranked[place]
        chance = np.random.default_rng((self._waiting.seed, self._milestone, member.number)).random
        donor = saved[int(chance() * len(saved))]
        how = Exploring(self._rule.resample_probability, self._rule.perturbation_factors)
        params = explored(self._waiting.space, donor.params, how, chance)
        where = f"goes on from trial {donor.number}'s checkpoint at step {donor.saved_step}"
        better = f"{self._waiting.metric} {donor.value:.6g}"
        reason = f"{what}; {where} ({better}) with {told(member.params, params)}"
        return self._said(place, "exploit", reason, donor=donor.number, params=params)

    def _said(
        self,
        place: int,
        decision: Literal["continue", "exploit"],
        reason: str,
        *,
        donor: int | None = None,
        params: Params | None = None,
    ) -> Release:
        member, count = self.ranked[place], self._count - 1
        first = max(self._last_to_stay - SHOWN_COUNT // 2, 0)
        near = [one.number for one in self.ranked[first : first + SHOWN_COUNT + 1] if one is not member]
        return Release(
            number=member.number,
            decision=decision,
            milestone=self._milestone,
            value=member.value,
            cutoff=self.ranked[self._last_to_stay].value if count else None,
            compared_count=count,
            compared_with=tuple(near[:SHOWN_COUNT]),
            reason=reason,
            donor=donor,
            params=params,
        )


def told(before: Params, after: Params) -> str:
    """`lr 0.012 (was 0.1), momentum 0.9 (new), without nesterov`, in the order of the space; what stays is left out."""
    words = [
        f"{name} {_short(value)} ({f'was {_short(before[name])}' if name in before else 'new'})"
        for name, value in after.items()
        if name not in before or before[name] != value
    ]
    words += [f"without {name}" for name in before if name not in after]
    more = [f"{len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return ", ".join([*words[:MOST_NAMED], *more]) or "its own params"


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shown(value)


def _named(members: Sequence[Member]) -> str:
    if len(members) == 1:
        return f"trial {members[0].number}"
    return f"trials {', '.join(str(one.number) for one in members[:MOST_NAMED])}"
