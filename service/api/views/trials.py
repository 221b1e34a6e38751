"""Trials as the API shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel
from sqlalchemy.orm import Session

from service.api.views.attempts import AttemptView, GenerationView
from service.api.views.rows import RowView
from service.store.attempts import attempts_of
from service.store.generations import generations_of
from service.store.tables import CheckpointRow, ExperimentRow, TrialRow
from service.store.trial_values import constraint_values, is_feasible, objective_values
from service.store.trials import newest_checkpoint, newest_checkpoints


class CheckpointView(RowView):
    uri: str
    step: int
    attempt: int
    at: datetime


class TrialView(BaseModel):
    """`values` are the newest values of the objectives, in the order of the spec.

    `reason` says why it ended or is queued again. `constraints` are the newest values of the constraints' metrics, and
    `feasible` says whether the trial satisfies them. Both are null without constraints; `feasible` also while a running
    trial has not reported all of them.
    """

    id: str
    experiment_id: str
    number: int
    status: str
    reason: str | None
    failure_kind: str | None
    params: dict[str, Any]
    values: list[float | None] | None
    constraints: dict[str, float | None] | None
    feasible: bool | None
    step: int | None
    origin: str
    stopping: str | None
    attempt_count: int
    checkpoint: CheckpointView | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, experiment: ExperimentRow, row: TrialRow, checkpoint: CheckpointRow | None) -> Self:
        return cls(
            id=row.id,
            experiment_id=row.experiment_id,
            number=row.number,
            status=row.status,
            reason=row.reason,
            failure_kind=row.failure_kind,
            params=row.params,
            values=objective_values(experiment, row),
            constraints=constraint_values(experiment, row),
            feasible=is_feasible(experiment, row),
            step=row.last_step,
            origin=row.origin,
            stopping=row.stop_reason if row.ended_at is None else None,
            attempt_count=row.attempt_count,
            checkpoint=CheckpointView.of(checkpoint) if checkpoint else None,
            created_at=row.created_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
        )


class TrialDetail(TrialView):
    """`generations` lists all of a trial that has trained with more than one set of params; otherwise it is empty."""

    attempts: list[AttemptView]
    generations: list[GenerationView]


def trial_detail(session: Session, row: TrialRow) -> TrialDetail:
    experiment, generations = session.get_one(ExperimentRow, row.experiment_id), generations_of(session, row.id)
    return TrialDetail(
        **dict(TrialView.of(experiment, row, newest_checkpoint(session, row.id))),
        attempts=[AttemptView.of(attempt, row, generations) for attempt in attempts_of(session, row.id)],
        generations=[GenerationView.of(generation) for generation in generations],
    )


def trial_views(session: Session, rows: Sequence[TrialRow]) -> list[TrialView]:
    """In the order of `rows`, with one query for their checkpoints."""
    checkpoints = newest_checkpoints(session, [row.id for row in rows])
    experiments = {key: session.get_one(ExperimentRow, key) for key in {row.experiment_id for row in rows}}
    return [TrialView.of(experiments[row.experiment_id], row, checkpoints.get(row.id)) for row in rows]
