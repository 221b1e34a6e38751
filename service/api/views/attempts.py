"""A trial's attempts, and the generations of params that they ran with, as the API shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import Field

from service.api.views.costs import CostView
from service.api.views.rows import RowView, View
from service.api.views.utilization import UtilizationView
from service.domain.cost import Cost
from service.store.tables import AttemptRow, GenerationRow, TrialRow
from trainer.wire import Scaling


class GenerationView(RowView):
    """The params that a trial trained with from attempt `first_attempt` on. Number 0 has the trial's first params.

    In a population, each further generation copies and perturbs the params of another trial: it resumes from
    `resumed_from`, which trial number `donor` had saved at `resumed_step` when both were at the `milestone`.
    """

    number: int
    """0 for the trial's first params"""
    params: dict[str, Any]
    """the params"""
    donor: int | None
    """the number of the trial whose params these come from"""
    milestone: int | None
    """the step at which the generation before ended"""
    resumed_from: str | None = Field(validation_alias="resume_uri")
    """the URI of the donor's checkpoint"""
    resumed_step: int | None = Field(validation_alias="resume_step")
    """the step of that checkpoint"""
    first_attempt: int
    """the first attempt that ran with these params"""
    at: datetime
    """when they were decided"""


class AttemptView(View):
    """One execution of a trial."""

    number: int
    """from 1"""
    generation: int
    """the generation of its params"""
    params: dict[str, Any]
    """what it ran with"""
    agent: str
    """who ran it"""
    outcome: str | None
    """how it ended; null while it runs"""
    error: dict[str, Any] | None
    """kind, message and tracebacks"""
    resumed_from: str | None
    """the URI of the checkpoint that it resumed from"""
    resumed_step: int | None
    """the step of that checkpoint"""
    started_at: datetime
    """when it was claimed"""
    began_at: datetime | None
    """when its training function began, if its holder has told"""
    world_size: int | None
    """how many workers ran it; null for an elastic group whose workers have not started"""
    last_report_at: datetime | None
    """when it last reported; an end that waits for the choice of a stopping rule counts, too"""
    uncounted_reports: int
    """how many reports it made after the one at which it had to leave; `counted=false` lists them"""
    lease_expires_at: datetime | None
    """when it is lost, unless it calls before; null when it has ended"""
    ended_at: datetime | None
    """when it ended"""
    cost: CostView
    """where its time went; until now, if it still runs"""
    utilization: UtilizationView | None
    """how busy its nodes and GPUs were; null without samples"""

    @classmethod
    def of(
        cls, row: AttemptRow, trial: TrialRow, generations: Sequence[GenerationRow], scaling: Scaling, cost: Cost
    ) -> Self:
        own = next((one for one in reversed(generations) if one.first_attempt <= row.number), None)
        return cls(
            number=row.number,
            generation=own.number if own else 0,
            params=own.params if own else trial.params,
            agent=row.holder,
            outcome=row.outcome,
            error=row.failure,
            resumed_from=row.resume_uri,
            resumed_step=row.resume_step,
            started_at=row.started_at,
            began_at=row.began_at,
            world_size=row.world_size if scaling.is_elastic else scaling.num_workers,
            last_report_at=row.last_report_at,
            uncounted_reports=row.uncounted_report_count,
            lease_expires_at=row.lease_expires_at if row.ended_at is None else None,
            ended_at=row.ended_at,
            cost=CostView.of(cost),
            utilization=UtilizationView.of(row.utilization),
        )
