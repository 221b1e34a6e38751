"""A trial's attempts, and the generations of params that they ran with, as the API shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from service.api.views.rows import RowView
from service.store.tables import AttemptRow, GenerationRow, TrialRow


class GenerationView(RowView):
    """The params that a trial trained with from attempt `first_attempt` on. Number 0 has the trial's first params.

    In a population, each further generation copies and perturbs the params of another trial: it resumes from
    `resumed_from`, which trial number `donor` had saved at `resumed_step` when both were at the `milestone`.
    """

    number: int
    params: dict[str, Any]
    donor: int | None
    milestone: int | None
    resumed_from: str | None = Field(validation_alias="resume_uri")
    resumed_step: int | None = Field(validation_alias="resume_step")
    first_attempt: int
    at: datetime


class AttemptView(BaseModel):
    """`agent` ran it with `params`, which are those of the trial's `generation`.

    `outcome` is null while it runs; `error` has kind, message and tracebacks.
    """

    number: int
    generation: int
    params: dict[str, Any]
    agent: str
    outcome: str | None
    error: dict[str, Any] | None
    resumed_from: str | None
    started_at: datetime
    last_report_at: datetime | None
    lease_expires_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, row: AttemptRow, trial: TrialRow, generations: Sequence[GenerationRow]) -> Self:
        own = next((one for one in reversed(generations) if one.first_attempt <= row.number), None)
        return cls(
            number=row.number,
            generation=own.number if own else 0,
            params=own.params if own else trial.params,
            agent=row.holder,
            outcome=row.outcome,
            error=row.failure,
            resumed_from=row.resume_uri,
            started_at=row.started_at,
            last_report_at=row.last_report_at,
            lease_expires_at=row.lease_expires_at if row.ended_at is None else None,
            ended_at=row.ended_at,
        )
