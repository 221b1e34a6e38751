"""The tables. SQL is the source of truth; everything else is a cache or a mirror of it.

All of them are in one file, so that the schema can be read as a whole.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, MetaData, String, UniqueConstraint, false, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.domain.statuses import ExperimentStatus, TrialStatus
from service.store.sql.column_types import SQLITES_INTEGER, Int64, Json, RowId, UtcDateTime
from service.store.sql.spec_column import SpecJson

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map = {  # noqa: RUF012
        Int64: BigInteger,
        RowId: SQLITES_INTEGER,
        datetime: UtcDateTime,
        dict[str, Any]: Json,
        list[float]: Json,
        list[int]: Json,
        list[str]: Json,
        list[Any]: Json,
    }


def _one_of(column: str, statuses: type[ExperimentStatus | TrialStatus]) -> CheckConstraint:
    allowed = ", ".join(f"'{status.value}'" for status in statuses)
    return CheckConstraint(f"{column} in ({allowed})", name=f"{column}_known")


EXPERIMENT_KEY = "experiments.id"
TRIAL_KEY = "trials.id"
TOKEN_NAME_LENGTH = 100


class PackageRow(Base):
    """The user's code. Its bytes are a file that is named by their digest."""

    __tablename__ = "packages"
    id: Mapped[str] = mapped_column(String(80), primary_key=True)
    filename: Mapped[str]
    size: Mapped[int] = mapped_column(SQLITES_INTEGER)
    files: Mapped[list[str]]
    created_at: Mapped[datetime]


class ExperimentRow(Base):
    """`trial_count` and `event_count` are the next numbers; they change only under this row's lock.

    `end_reason` may be set while trials are still running; the status changes when the last of them has ended.
    `spec_changed_at_event` identifies the version of the spec. `milestone_count` counts the changes of the
    experiment's milestones. `cost` is that of the attempts that have ended, as `service.domain.cost.Cost`.
    `checkpoint_bytes` is the sum over the checkpoints that are present. `has_unpinned`: a checkpoint was unpinned, and
    retention has yet to look at it, or waits for its trial to settle. `rule_choice`, if the service chooses the
    early-stopping rule: why it chose the one in the spec, and what it knew of a whole training; None if a user did.
    `announced_sampler` is the one that the newest `experiment.search_chosen` names; None also if that is not known yet.
    """

    __tablename__ = "experiments"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    spec: Mapped[dict[str, Any]] = mapped_column(SpecJson)
    tags: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(String(20))
    end_reason: Mapped[str | None] = mapped_column(String(40))
    end_detail: Mapped[str | None]
    priority: Mapped[int] = mapped_column(default=0)
    trial_count: Mapped[int] = mapped_column(default=0)
    event_count: Mapped[Int64] = mapped_column(default=0)
    spec_changed_at_event: Mapped[Int64] = mapped_column(default=0, server_default="0")
    milestone_count: Mapped[Int64] = mapped_column(default=0, server_default="0")
    checkpoint_bytes: Mapped[Int64] = mapped_column(default=0, server_default="0")
    has_unpinned: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    cost: Mapped[dict[str, Any] | None]
    rule_choice: Mapped[dict[str, Any] | None]
    announced_sampler: Mapped[str | None]
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    request_digest: Mapped[str | None] = mapped_column(String(64))
    traceparent: Mapped[str | None] = mapped_column(String(55))
    __table_args__ = (
        Index(None, "created_at", "id"),
        Index(None, "status", "created_at", "id"),
        _one_of("status", ExperimentStatus),
    )


class TrialRow(Base):
    """One configuration of an experiment, and what has become of it."""

    __tablename__ = "trials"
    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"))
    number: Mapped[int]
    params: Mapped[dict[str, Any]]
    origin: Mapped[str] = mapped_column(String(20))
    source: Mapped[str | None] = mapped_column(String(20))
    """what the search took the params from, or `user`"""
    estimate: Mapped[dict[str, Any] | None]
    """that of the sampler's model; None if it has made none, also in a trial of an earlier version"""
    warm_start: Mapped[dict[str, Any] | None]
    """the `Contribution` of earlier experiments to the params; None without any"""
    confirms: Mapped[int | None]
    """the number of the trial whose params a confirmation runs again"""
    seed: Mapped[Int64 | None]
    """what its `config.seed` is; None in an experiment without `confirm`"""
    status: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str | None]
    failure_kind: Mapped[str | None] = mapped_column(String(20))
    stop_cause: Mapped[str | None] = mapped_column(String(30))
    stop_reason: Mapped[str | None]
    killed: Mapped[bool] = mapped_column(default=False)
    value: Mapped[float | None]
    """the newest value of the first objective, or with `report: best` the best one, of the `best_step`"""
    values: Mapped[dict[str, Any] | None]
    """the newest values of all objectives and of the constraints' metrics, by name"""
    violation: Mapped[float | None]
    """the amount by which the values violate the constraints, 0 for a feasible trial; None without constraints, and
    while a metric is missing"""
    best_step: Mapped[Int64 | None]
    """None without `report: best`"""
    last_step: Mapped[Int64 | None]
    judged_step: Mapped[Int64 | None]
    bracket: Mapped[dict[str, Any] | None]
    """a `search.early_stopping.bracket.Bracket`; None if its rule gave it none, and in trials of earlier versions"""
    paused_milestone: Mapped[Int64 | None]
    """as `paused_value`, set from the pause until the trial continues or ends"""
    paused_value: Mapped[float | None]
    paused_pool: Mapped[int] = mapped_column(default=0, server_default="0")
    """the pool in which it waits or waited last"""
    attempt_count: Mapped[int] = mapped_column(default=0)
    enqueue_key: Mapped[str | None] = mapped_column(String(200))
    """the Idempotency-Key of the call that enqueued it"""
    forgiven_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    """its first attempts that count against no budget, because a user has retried the trial since"""
    changed_at_event: Mapped[Int64] = mapped_column(default=0)
    """the event of the last change, by which caches read only what is new"""
    cost: Mapped[dict[str, Any] | None]
    """that of its attempts that have ended, as `service.domain.cost.Cost`"""
    created_at: Mapped[datetime]
    queued_at: Mapped[datetime | None]
    """when it was queued last"""
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint("experiment_id", "number"),
        Index(None, "experiment_id", "status", "number"),
        Index(None, "experiment_id", "changed_at_event"),
        Index(None, "experiment_id", "value", "number"),
        Index(None, "experiment_id", "status", "value", "number"),
        Index(
            "ix_trials_enqueue_key",
            "experiment_id",
            "enqueue_key",
            sqlite_where=text("enqueue_key is not null"),
            postgresql_where=text("enqueue_key is not null"),
        ),
        # A trial is confirmed once with each seed.
        Index(
            "uq_trials_confirms",
            "experiment_id",
            "confirms",
            "seed",
            unique=True,
            sqlite_where=text("confirms is not null"),
            postgresql_where=text("confirms is not null"),
        ),
        # Finds the best paused trial at a milestone, and the milestones with paused trials.
        Index(
            "ix_trials_paused",
            "experiment_id",
            "paused_milestone",
            "paused_pool",
            "paused_value",
            "number",
            sqlite_where=text("paused_milestone is not null"),
            postgresql_where=text("paused_milestone is not null"),
        ),
        _one_of("status", TrialStatus),
    )


class WarmStartRow(Base):
    """What the search learned from earlier experiments, copied at submit so that it does not change with them.

    `observations` are `search.problem.Observation`s as JSON; `sources` has a summary of each earlier experiment.
    """

    __tablename__ = "warm_starts"
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"), primary_key=True)
    observations: Mapped[list[Any]]
    sources: Mapped[list[Any]]


class AttemptRow(Base):
    """One execution of a trial, held under a lease."""

    __tablename__ = "attempts"
    id: Mapped[RowId] = mapped_column(primary_key=True)
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"))
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"))
    number: Mapped[int]
    holder: Mapped[str] = mapped_column(String(200))
    request_id: Mapped[str | None] = mapped_column(String(200))
    lease_digest: Mapped[str] = mapped_column(String(64), unique=True)
    """of the lease token; a restore replaces it by a revoked one"""
    lease_salt: Mapped[str | None] = mapped_column(String(32))
    """`service.runtime.lease_tokens` computes the lease token from it"""
    lease_expires_at: Mapped[datetime | None]
    service: Mapped[str | None] = mapped_column(String(300))
    """the one service process that the holder can reach; None if it has the addresses of others, too"""
    resume_uri: Mapped[str | None]
    resume_step: Mapped[Int64 | None]
    first_step: Mapped[Int64]
    """the step of a first report that names none"""
    next_sequence: Mapped[Int64] = mapped_column(default=0)
    """the first report sequence that has not arrived"""
    deciding_sequence: Mapped[Int64 | None]
    """of the report whose answer was the decision to end the attempt: later ones are uncounted"""
    outcome: Mapped[str | None] = mapped_column(String(20))
    failure: Mapped[dict[str, Any] | None]
    phases: Mapped[dict[str, Any] | None]
    """the seconds since `began_at` as the holder has sent them last: `trainer.wire.PhaseSeconds`"""
    queued_at: Mapped[datetime | None]
    """when its trial was queued for it"""
    started_at: Mapped[datetime]
    began_at: Mapped[datetime | None]
    """when the training function began, as far as its holder has said"""
    world_size: Mapped[int | None]
    """the number of workers of an elastic group, once they have started"""
    utilization: Mapped[dict[str, Any] | None]
    """sums up the samples of its nodes: `service.domain.system_metrics_summary.Utilization`"""
    traceparent: Mapped[str | None] = mapped_column(String(55))
    """of its trace, where there is tracing"""
    last_report_at: Mapped[datetime | None]
    is_ending: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether the holder has told that no worker trains any more, and finds out how the attempt has ended. It stays
    true while the holder delivers the last reports, such as those that wait for a validation."""
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint("trial_id", "number"),
        UniqueConstraint("holder", "request_id"),
        Index(None, "experiment_id", "id"),  # finds the newest attempt of an experiment
        # A trial has at most one running attempt.
        Index(
            "uq_attempts_living",
            "trial_id",
            unique=True,
            sqlite_where=text("ended_at is null"),
            postgresql_where=text("ended_at is null"),
        ),
        Index(
            "ix_attempts_expiry",
            "lease_expires_at",
            sqlite_where=text("ended_at is null"),
            postgresql_where=text("ended_at is null"),
        ),
    )

    @property
    def uncounted_report_count(self) -> int:
        """The number of reports that were made after the deciding one."""
        return 0 if self.deciding_sequence is None else max(0, self.next_sequence - self.deciding_sequence - 1)


class ReportRow(Base):
    """A point of a trial's curve. The first attempt that reaches a step decides its value."""

    __tablename__ = "reports"
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), primary_key=True)
    step: Mapped[Int64] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    sequence: Mapped[Int64]
    metrics: Mapped[dict[str, Any]]
    value: Mapped[float | None]
    at: Mapped[datetime]


class UncountedReportRow(Base):
    """A report that was made after the deciding one of its attempt, while the service could not answer.

    It is no part of the trial's curve, and a later attempt may report the same step.
    """

    __tablename__ = "uncounted_reports"
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    sequence: Mapped[Int64] = mapped_column(primary_key=True)
    step: Mapped[Int64]
    metrics: Mapped[dict[str, Any]]
    reason: Mapped[str]
    at: Mapped[datetime]


class MilestoneRow(Base):
    """The value of a trial at a step at which early stopping compares trials; step -1 is the end of a completed trial.

    `pool` is the group of trials that are compared (`search.early_stopping.history` names them). `change` is the
    number of the row's last change. All rows are replaced when the early-stopping rule changes.
    """

    __tablename__ = "milestones"
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"), primary_key=True)
    milestone: Mapped[Int64] = mapped_column(primary_key=True)
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), primary_key=True, index=True)
    number: Mapped[int] = mapped_column(server_default="0")
    pool: Mapped[int] = mapped_column(server_default="0")
    value: Mapped[float]
    change: Mapped[Int64]
    __table_args__ = (Index(None, "experiment_id", "change"),)


class DecisionRow(Base):
    """An early-stopping decision, with the fields of `service.domain.decision_grounds.GroundsModel`."""

    __tablename__ = "decisions"
    id: Mapped[RowId] = mapped_column(primary_key=True)
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), index=True)
    attempt: Mapped[int]
    decision: Mapped[str] = mapped_column(String(20))
    rule: Mapped[str] = mapped_column(String(40))
    metric: Mapped[str]
    step: Mapped[Int64]
    milestone: Mapped[Int64]
    value: Mapped[float]
    cutoff: Mapped[float | None]
    compared_count: Mapped[int]
    compared_with: Mapped[list[int]] = mapped_column(server_default="[]")
    reason: Mapped[str]
    at: Mapped[datetime]


class GenerationRow(Base):
    """The params that a trial trains with from attempt `first_attempt` on.

    The params of the newest generation are the trial's. A trial that always had its own params has no generations.
    Generation 0 has the params that it began with. Each further one resumes from the checkpoint of trial number `donor`
    when both were at the `milestone`.
    """

    __tablename__ = "generations"
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    params: Mapped[dict[str, Any]]
    donor: Mapped[int | None]
    milestone: Mapped[Int64 | None]
    resume_uri: Mapped[str | None]
    resume_step: Mapped[Int64 | None]
    first_attempt: Mapped[int]
    began_at_event: Mapped[Int64]
    at: Mapped[datetime]


class CheckpointRow(Base):
    """`sequence` is that of the report which saved it. It gives the attempt's order, even if reports arrive late.

    `value` is what the attempt has reported for the first objective at the step, last if several times; None if it has
    not, and in a checkpoint of an earlier version. `bytes`: None if its holder has not told. While `pinned_at` is set,
    only the experiment's deletion removes it. After `removed_at` nothing resumes from it: retention has removed it, or
    soon will have, for the reason in `removed_why`.
    """

    __tablename__ = "checkpoints"
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), primary_key=True)
    step: Mapped[Int64] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    sequence: Mapped[Int64] = mapped_column(server_default="0")
    uri: Mapped[str]
    value: Mapped[float | None]
    at: Mapped[datetime]
    bytes: Mapped[Int64 | None]
    pinned_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]
    removed_why: Mapped[str | None]

    @property
    def pinned(self) -> bool:
        return self.pinned_at is not None


class EventRow(Base):
    """The event log of an experiment, without gaps: the source of the event stream and of the MLflow mirror."""

    __tablename__ = "events"
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"), primary_key=True)
    seq: Mapped[Int64] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    trial_id: Mapped[str | None] = mapped_column(String(20))
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]


class AgentRow(Base):
    """`instance` is the process that uses this name. While it is set, no other process may.

    `storage_error` is why the agent cannot write to the storage; None if it can, or has not told.

    The process loses the name after `name_expires_at`, if it could have reached the service (see `expire_agent_names`).
    """

    __tablename__ = "agents"
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    nodes: Mapped[list[Any]]
    first_seen_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    storage_error: Mapped[str | None]
    instance: Mapped[dict[str, Any] | None]
    name_expires_at: Mapped[datetime | None]


class CheckpointDeletionRow(Base):
    """A directory that an agent is to delete: of a deleted experiment, or with checkpoints that are not kept.

    `error` says why its last try failed, at `tried_at`. An id is never used again: an agent may repeat what became of
    an earlier deletion.
    """

    __tablename__ = "checkpoint_deletions"
    id: Mapped[RowId] = mapped_column(primary_key=True)
    agent: Mapped[str] = mapped_column(String(200), index=True)
    directory: Mapped[str]
    error: Mapped[str | None]
    tried_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012


class ServiceRow(Base):
    """A service process. `url` is the address at which others reach it, if it has one that it may name.

    `seen_at`: when it last stored that it is there; `reachable_since`: since when it has been without a gap.
    """

    __tablename__ = "services"
    name: Mapped[str] = mapped_column(String(300), primary_key=True)
    url: Mapped[str | None] = mapped_column(String(300))
    seen_at: Mapped[datetime]
    reachable_since: Mapped[datetime]


class SchemaCompatibilityRow(Base):
    """One row: the oldest revision whose services work with the present schema, beside newer ones.

    Migrations only add, so it stays; one that removes something raises it (`migrations/versions`).
    """

    __tablename__ = "schema_compatibility"
    oldest_revision: Mapped[str] = mapped_column(String(10), primary_key=True)


class TokenRow(Base):
    """An access token. Only its SHA-256 digest is stored.

    `created_at` is the time of the present token, which `paceline token rotate` replaces under the same name. The one
    before it, `previous_digest`, stays valid until `previous_expires_at`.
    """

    __tablename__ = "tokens"
    name: Mapped[str] = mapped_column(String(TOKEN_NAME_LENGTH), primary_key=True)
    role: Mapped[str] = mapped_column(String(20))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    previous_digest: Mapped[str | None] = mapped_column(String(64), unique=True)
    previous_expires_at: Mapped[datetime | None]


class MirrorRow(Base):
    """The state of an experiment's MLflow mirror. `pictured_event` is the last event that its charts show."""

    __tablename__ = "mirrors"
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"), primary_key=True)
    cursor: Mapped[Int64] = mapped_column(default=0)
    mlflow_experiment_id: Mapped[str | None]
    parent_run_id: Mapped[str | None]
    error: Mapped[str | None]
    updated_at: Mapped[datetime]
    pictured_event: Mapped[Int64] = mapped_column(default=0, server_default="0")
    pictured_at: Mapped[datetime | None]
    pictures_error: Mapped[str | None]


class MirrorRunRow(Base):
    """An MLflow run. The params of a run cannot change, so each generation of a trial has a run of its own."""

    __tablename__ = "mirror_runs"
    trial_id: Mapped[str] = mapped_column(ForeignKey(TRIAL_KEY, ondelete="CASCADE"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, server_default="0")
    experiment_id: Mapped[str] = mapped_column(ForeignKey(EXPERIMENT_KEY, ondelete="CASCADE"), index=True)
    run_id: Mapped[str] = mapped_column(String(64))
