"""What retention removes and keeps, as the API shows it."""

from typing import Literal, Self

from service.api.views.rows import View
from service.operations.checkpoints.retention_plan import Plan
from service.operations.checkpoints.retention_rules import RetentionVerdict


class PlannedCheckpoint(View):
    """A checkpoint that is on the storage, and what is to become of it."""

    trial: str
    """the trial's id"""
    trial_number: int
    """the trial's number"""
    step: int
    """the step that it was saved at"""
    uri: str
    """where it is"""
    bytes: int | None
    """its size; null if it is not known"""
    action: Literal["keep", "remove"]
    """what is to become of it"""
    why: str
    """the reason, in words"""

    @classmethod
    def of(cls, verdict: RetentionVerdict, trial_id: str) -> Self:
        one = verdict.checkpoint
        return cls(
            trial=trial_id,
            trial_number=one.trial,
            step=one.step,
            uri=one.uri,
            bytes=one.size,
            action="keep" if verdict.is_kept else "remove",
            why=verdict.why,
        )


class Total(View):
    """Some checkpoints together."""

    count: int
    """how many they are"""
    bytes: int
    """their sizes together, as far as they are known"""

    @classmethod
    def of(cls, verdicts: list[RetentionVerdict]) -> Self:
        return cls(count=len(verdicts), bytes=sum(one.checkpoint.size or 0 for one in verdicts))


class CheckpointPlan(View):
    """What would be removed now, and why each other checkpoint is kept: one page of it, with the totals of all."""

    remove: Total
    """the checkpoints that would be removed"""
    keep: Total
    """the checkpoints that are kept"""
    items: list[PlannedCheckpoint]
    """the checkpoints of this page, by trial number and step"""
    next_cursor: str | None
    """the cursor of the next page; null on the last page"""

    @classmethod
    def of(cls, plan: Plan, page: list[RetentionVerdict], next_cursor: str | None) -> Self:
        return cls(
            remove=Total.of([one for one in plan.verdicts if not one.is_kept]),
            keep=Total.of([one for one in plan.verdicts if one.is_kept]),
            items=[PlannedCheckpoint.of(one, plan.trial_ids[one.checkpoint.trial]) for one in page],
            next_cursor=next_cursor,
        )
