"""What the API shows of rows. Times are UTC ISO 8601."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel
from sqlalchemy.orm import Session

from search.samplers import ChosenSampler
from service.runtime.spec_cache import spec_of
from service.store.attempts import attempts_of
from service.store.generations import generations_of
from service.store.tables import (
    AttemptRow,
    Base,
    CheckpointRow,
    EventRow,
    ExperimentRow,
    GenerationRow,
    TrialRow,
)
from service.store.trial_values import constraint_values, is_feasible, objective_values
from service.store.trials import newest_checkpoint, newest_checkpoints

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """`next_cursor` leads to the next page; None on the last."""

    items: list[Item]
    next_cursor: str | None = None


class RowView(BaseModel):
    """What shows a row's columns by their own names."""

    @classmethod
    def of(cls, row: Base) -> Self:
        return cls.model_validate(row, from_attributes=True)


class PackageView(RowView):
    id: str
    filename: str
    size: int
    files: list[str]
    created_at: datetime


class CheckpointView(RowView):
    uri: str
    step: int
    attempt: int
    at: datetime


class TrialView(BaseModel):
    """`values` are the objectives' newest, in the order of the spec; `reason` says why it ended or waits again.

    `constraints` are the newest values of the constraints' metrics; `feasible` says whether they keep them. Both are
    null without constraints; `feasible` also while a running trial has not reported all of them.
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
    def of(cls, experiment: ExperimentRow, row: TrialRow, checkpoint: CheckpointRow | None) -> "TrialView":
        return cls(**_trial_facts(experiment, row, checkpoint))


class FrontView(Page[TrialView]):
    """A Pareto front of `count` trials: none of them is beaten by any other one in every objective."""

    objectives: list[dict[str, Any]]
    count: int


class GenerationView(BaseModel):
    """What a trial trained with from attempt `first_attempt` on. Number 0 is what it began with.

    Each further one is another's, explored: `resumed_from` is what trial number `donor` had saved at `resumed_step`
    when both were at the `milestone`.
    """

    number: int
    params: dict[str, Any]
    donor: int | None
    milestone: int | None
    resumed_from: str | None
    resumed_step: int | None
    first_attempt: int
    at: datetime

    @classmethod
    def of(cls, row: GenerationRow) -> Self:
        return cls(
            number=row.number,
            params=row.params,
            donor=row.donor,
            milestone=row.milestone,
            resumed_from=row.resume_uri,
            resumed_step=row.resume_step,
            first_attempt=row.first_attempt,
            at=row.at,
        )


class AttemptView(BaseModel):
    """`agent` is who ran it, with `params`, which are those of the trial's `generation`.

    `outcome` is None while it runs; `error` has kind, message and tracebacks.
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
    def of(cls, row: AttemptRow, trial: TrialRow, generations: Sequence[GenerationRow]) -> "AttemptView":
        own = [one for one in generations if one.first_attempt <= row.number]
        return cls(
            number=row.number,
            generation=own[-1].number if own else 0,
            params=own[-1].params if own else trial.params,
            agent=row.holder,
            outcome=row.outcome,
            error=row.failure,
            resumed_from=row.resume_uri,
            started_at=row.started_at,
            last_report_at=row.last_report_at,
            lease_expires_at=row.lease_expires_at if row.ended_at is None else None,
            ended_at=row.ended_at,
        )


class TrialDetail(TrialView):
    """`generations` has those of a trial that has gone on with other params, from the first on; else it is empty."""

    attempts: list[AttemptView]
    generations: list[GenerationView]

    @classmethod
    def read(cls, session: Session, row: TrialRow) -> "TrialDetail":
        experiment, generations = session.get_one(ExperimentRow, row.experiment_id), generations_of(session, row.id)
        return cls(
            **_trial_facts(experiment, row, newest_checkpoint(session, row.id)),
            attempts=[AttemptView.of(attempt, row, generations) for attempt in attempts_of(session, row.id)],
            generations=[GenerationView.of(generation) for generation in generations],
        )


class SamplerView(BaseModel):
    """`why` has the reason if `auto` chose the sampler."""

    name: str
    options: dict[str, Any]
    why: str | None

    @classmethod
    def of(cls, chosen: ChosenSampler) -> Self:
        return cls(name=chosen.name, options=chosen.sampler.model_dump(mode="json"), why=chosen.reason)


class ExperimentView(BaseModel):
    """`counts` has every trial status; `best` is the best trial so far; `waiting_for` says what keeps it from running.

    With several objectives `best` is null: `/best` has the Pareto front.
    `ending` is true while the last trials of an experiment that is over still leave. `traceback` is the first failed
    trial's, of an experiment that failed. `warm_start` says of each earlier experiment how many of its trials the
    search has learned from, and why the others were left out. `sampler` is the one that proposes, with all its options.
    """

    id: str
    name: str
    status: str
    ending: bool
    end_reason: str | None
    end_detail: str | None
    traceback: str | None
    waiting_for: str | None
    counts: dict[str, int]
    best: TrialView | None
    mlflow_url: str | None
    mlflow_error: str | None
    priority: int
    tags: dict[str, Any]
    spec: dict[str, Any]
    sampler: SamplerView
    created_at: datetime
    ended_at: datetime | None
    warm_start: list[dict[str, Any]] | None

    @classmethod
    def of(
        cls,
        row: ExperimentRow,
        *,
        counts: dict[str, int],
        best: TrialView | None,
        traceback: str | None,
        waiting_for: str | None,
        mlflow_url: str | None,
        mlflow_error: str | None,
        warm_start: list[dict[str, Any]] | None,
    ) -> "ExperimentView":
        spec = spec_of(row)
        return cls(
            id=row.id,
            name=row.name,
            status=row.status,
            ending=row.end_reason is not None and row.ended_at is None,
            end_reason=row.end_reason,
            end_detail=row.end_detail,
            traceback=traceback,
            waiting_for=waiting_for,
            counts=counts,
            best=best,
            mlflow_url=mlflow_url,
            mlflow_error=mlflow_error,
            priority=row.priority,
            tags=row.tags,
            spec=row.spec,
            sampler=SamplerView.of(spec.search.chosen_for(spec.problem)),
            created_at=row.created_at,
            ended_at=row.ended_at,
            warm_start=warm_start,
        )


class ReportView(RowView):
    step: int
    attempt: int
    sequence: int
    metrics: dict[str, Any]
    at: datetime


class Grounds(BaseModel):
    """`cutoff` is what `value` was held against, from `compared_count` trials at the `milestone`.

    `compared_with` has the numbers of up to ten of them, those nearest to the cutoff, best first.
    """

    milestone: int
    value: float
    cutoff: float | None
    compared_count: int
    compared_with: list[int]
    reason: str


class DecisionView(Grounds, RowView):
    """What early stopping said to a report, or of a trial that waited."""

    decision: str
    rule: str
    metric: str
    step: int
    attempt: int
    at: datetime


class EventView(BaseModel):
    seq: int
    kind: str
    trial: str | None
    data: dict[str, Any]
    at: datetime

    @classmethod
    def of(cls, row: EventRow) -> "EventView":
        return cls(seq=row.seq, kind=row.kind, trial=row.trial_id, data=row.data, at=row.at)


class AgentView(BaseModel):
    """`nodes` are those of its Ray cluster with total and free resources; `running` the trials that it runs now."""

    name: str
    connected: bool
    nodes: list[Any]
    running: list[str]
    first_seen_at: datetime
    last_seen_at: datetime


def trial_views(session: Session, rows: Sequence[TrialRow]) -> list[TrialView]:
    checkpoints: Mapping[str, CheckpointRow] = newest_checkpoints(session, [row.id for row in rows])
    experiments = {key: session.get_one(ExperimentRow, key) for key in {row.experiment_id for row in rows}}
    return [TrialView.of(experiments[row.experiment_id], row, checkpoints.get(row.id)) for row in rows]


def _trial_facts(experiment: ExperimentRow, row: TrialRow, checkpoint: CheckpointRow | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "experiment_id": row.experiment_id,
        "number": row.number,
        "status": row.status,
        "reason": row.reason,
        "failure_kind": row.failure_kind,
        "params": row.params,
        "values": objective_values(experiment, row),
        "constraints": constraint_values(experiment, row),
        "feasible": is_feasible(experiment, row),
        "step": row.last_step,
        "origin": row.origin,
        "stopping": row.stop_reason if row.ended_at is None else None,
        "attempt_count": row.attempt_count,
        "checkpoint": CheckpointView.of(checkpoint) if checkpoint else None,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
    }
