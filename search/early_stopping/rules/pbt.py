"""Population-based training (Jaderberg et al., 2017) in synchronous generations."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from search.early_stopping.decision import MAX_COMPARED_WITH, Release, Verdict
from search.early_stopping.history import History, MetricReport
from search.early_stopping.paused_trials import PausedTrial, PausedTrials
from search.early_stopping.rule import MAX_COUNT, StoppingRule
from search.early_stopping.rules.pbt_explore import Explore, explored
from search.mistakes import Mistake
from search.space.scalars import shown
from search.space.space import Params, Space

MIN_MEMBERS = 2
MAX_NAMED = 10
"""The maximum number of parameters or trials that a sentence names."""

LAST_STEP = "the last step of a complete training; for a training without an end, a step that it never reaches"

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Pbt(StoppingRule):
    """All trials are one population. Each is paused at every multiple of `interval` until the others reach it or end.

    Then each of the worst `quantile` resumes from the newest checkpoint of a random one of the best `quantile`, the
    donor, with the donor's params explored: each param, or each of `perturb`, is resampled with `resample_probability`,
    otherwise perturbed by one of `perturbation_factors`. The others resume as they are. No generation ends before
    `grace_steps`. None ends at `max_step` or beyond, where a trial would be paused at its end, or end with params that
    it never trained with.

    A generation is a function of the stored values at its milestone and of (seed, milestone, number).
    """

    not_replayed: ClassVar[str | None] = "changes the params of trials, and recorded reports do not show the effect"
    rule: Literal["pbt"] = "pbt"
    """the name of the rule"""
    interval: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    """the number of steps of a generation"""
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """the share of trials that adopt the params of others, and the share of those that are adopted from"""
    resample_probability: Annotated[float, Field(ge=0, le=1)] = 0.25
    """the probability that a param is drawn anew instead of perturbed"""
    perturbation_factors: list[Factor] = Field(default=[0.8, 1.2], min_length=1, max_length=100)
    """a perturbed param is multiplied by one of these"""
    perturb: Annotated[list[str], Field(min_length=1)] | None = None
    """the parameters that are perturbed or drawn anew; absent: all. The others stay as the adopted trial has them, such
    as the width of a layer, without which its checkpoint would not fit"""
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT, description=LAST_STEP)]

    @model_validator(mode="after")
    def _a_generation_ends_before_max_step(self) -> Self:
        if self._first_milestone >= self.max_step:
            raise ValueError(f"max_step must be above {self._first_milestone}, where the first generation ends")
        return self

    def mistakes_in_names(self, space: Space) -> Iterator[Mistake]:
        """Paths start at the rule."""
        for index, name in enumerate(self.perturb or ()):
            if name not in space.root:
                yield Mistake(("perturb", index), space.unknown_parameter)

    @property
    def pauses(self) -> bool:
        return True

    @property
    def paused_trials_lose(self) -> bool:
        return False

    @property
    def _first_milestone(self) -> int:
        return self.interval * max(-(-self.grace_steps // self.interval), 1)

    def milestones(self, report: MetricReport, history: History) -> list[int]:  # noqa: ARG002
        """Only the highest: a report that jumps over several milestones skips the others. None with the last report.

        Trials that report at the same steps have the same milestones. Otherwise the trials that are behind resume until
        they have caught up.
        """
        if report.step >= self.max_step:
            return []
        before = report.previous_step
        highest = report.step // self.interval * self.interval
        return [highest] if highest >= self._first_milestone and (before is None or highest > before) else []

    def judge(self, report: MetricReport, milestone: int, history: History) -> Verdict:  # noqa: ARG002
        value = f"{report.metric} {report.value:.6g} at step {report.step}"
        return Verdict(
            stop=True,
            pauses=True,
            rule=self.rule,
            step=report.step,
            milestone=milestone,
            value=report.value,
            cutoff=None,
            compared_count=0,
            reason=f"{value} ends a generation at step {milestone}; paused until the other trials reach it",
        )

    def releases(self, paused: PausedTrials) -> Iterator[Release]:
        """The trials at the lowest milestone, once no other trial may reach it."""
        milestones = () if paused.others_may_come else paused.milestones()
        if not milestones:
            return
        generation = _Generation(self, paused, milestones[0])
        # All releases are computed before the first is applied, because that changes who is paused.
        yield from [generation.release(rank) for rank in range(len(generation.ranked))]


class _Generation:
    def __init__(self, rule: Pbt, paused: PausedTrials, milestone: int) -> None:
        sign = -1 if paused.direction == "maximize" else 1
        self._rule, self._paused, self._milestone = rule, paused, milestone
        self.ranked = sorted(paused.members(milestone), key=lambda one: (sign * one.value, one.number))
        self._count = len(self.ranked)
        self._part = max(int(self._count * rule.quantile), 1) if self._count >= MIN_MEMBERS else 0
        self._last_to_keep = self._count - self._part - 1

    def release(self, rank: int) -> Release:
        member = self.ranked[rank]
        what = f"{self._paused.metric} {member.value:.6g} at step {self._milestone}"
        if rank <= self._last_to_keep:
            return self._keep(rank, f"{what} {self._reason_to_keep(rank)}")
        what = f"{what} is among the worst {self._part} of {self._count}"
        best = self.ranked[: self._part]
        better = [one for one in best if one.value != member.value]
        saved = [one for one in better if one.saved_step is not None]
        if not better:
            return self._keep(rank, f"{what}, but the best trials have the same value")
        if not saved:
            return self._keep(rank, f"{what}, but the best of them saved no checkpoint ({_numbers_in_words(better)})")
        return self._exploit(rank, what, saved)

    def _reason_to_keep(self, rank: int) -> str:
        if self._count < MIN_MEMBERS:
            return "is the only one at the end of this generation"
        if rank < self._part:
            return f"is among the best {self._part} of {self._count}"
        return f"is not among the worst {self._part} of {self._count}"

    def _keep(self, rank: int, reason: str) -> Release:
        return self._release(rank, "continue", f"{reason}; resumes as it is")

    def _exploit(self, rank: int, what: str, saved: Sequence[PausedTrial]) -> Release:
        import numpy as np  # noqa: PLC0415 - slow, and needed for nothing else

        member = self.ranked[rank]
        random = np.random.default_rng((self._paused.seed, self._milestone, member.number)).random
        donor = saved[int(random() * len(saved))]
        explore = Explore(self._rule.resample_probability, self._rule.perturbation_factors, self._rule.perturb)
        params = explored(self._paused.space, donor.params, explore, random)
        where = f"resumes from trial {donor.number}'s checkpoint at step {donor.saved_step}"
        better = f"{self._paused.metric} {donor.value:.6g}"
        reason = f"{what}; {where} ({better}) with {changes_in_words(member.params, params)}"
        return self._release(rank, "exploit", reason, donor=donor.number, params=params)

    def _release(
        self,
        rank: int,
        decision: Literal["continue", "exploit"],
        reason: str,
        *,
        donor: int | None = None,
        params: Params | None = None,
    ) -> Release:
        member, count = self.ranked[rank], self._count - 1
        first = max(self._last_to_keep - MAX_COMPARED_WITH // 2, 0)
        nearest = [one.number for one in self.ranked[first : first + MAX_COMPARED_WITH + 1] if one is not member]
        return Release(
            number=member.number,
            decision=decision,
            milestone=self._milestone,
            value=member.value,
            cutoff=self.ranked[self._last_to_keep].value if count else None,
            compared_count=count,
            compared_with=tuple(nearest[:MAX_COMPARED_WITH]),
            reason=reason,
            donor=donor,
            params=params,
        )


def changes_in_words(before: Params, after: Params) -> str:
    """`lr 0.012 (was 0.1), momentum 0.9 (new), without nesterov`: the changed params, in the order of the space."""
    words = [
        f"{name} {_value_in_words(value)} ({f'was {_value_in_words(before[name])}' if name in before else 'new'})"
        for name, value in after.items()
        if name not in before or before[name] != value
    ]
    words += [f"without {name}" for name in before if name not in after]
    more = [f"{len(words) - MAX_NAMED} more"] if len(words) > MAX_NAMED else []
    return ", ".join([*words[:MAX_NAMED], *more]) or "its own params"


def _value_in_words(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shown(value)


def _numbers_in_words(members: Sequence[PausedTrial]) -> str:
    if len(members) == 1:
        return f"trial {members[0].number}"
    return f"trials {', '.join(str(one.number) for one in members[:MAX_NAMED])}"
