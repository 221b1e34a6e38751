"""Applies retention: what is not kept any more is noted as removed, and the agents that saved it get to delete it."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from search.pareto import pareto_front
from service.domain.attempt_holders import is_caller
from service.domain.statuses import CONTENDERS, LIVE_EXPERIMENT, TrialStatus
from service.operations.checkpoints.folders import chooses_server, is_below, run_folder_of, run_of
from service.operations.checkpoints.retention import (
    SETTLED_SECONDS,
    RetainedCheckpoint,
    RetainedTrial,
    RetentionRules,
    RetentionVerdict,
    retention_plan,
)
from service.runtime.caches.experiment_caches import spec_of
from service.runtime.context import Context
from service.specification.models import CheckpointsSpec
from service.store.checkpoints.checkpoint_deletions import add_deletions
from service.store.checkpoints.checkpoints import (
    RankedTrial,
    count_bytes,
    present_checkpoints,
    ranked_trials,
    uris_in_use,
)
from service.store.checkpoints.donated_checkpoints import retryable_trial_ids
from service.store.events import append_event
from service.store.experiments import lock_experiment
from service.store.sql.database import database_now
from service.store.tables import CheckpointRow, ExperimentRow
from service.store.trials.param_generations import ResumePoint, resume_points
from service.store.trials.trial_values import constraint_names, objective_names
from trainer.wire import Kind

SETTLED_AFTER = timedelta(seconds=SETTLED_SECONDS)
"""The time after a trial's end by which Ray has shut its run down, and writes nothing more into its folder."""

REMOVED_AT_ONCE = 1000
"""The most checkpoints that one transaction removes."""


@dataclass(frozen=True)
class Plan:
    """The verdicts on all checkpoints of an experiment, by trial number and step. `trial_ids` are by number."""

    verdicts: list[RetentionVerdict]
    trial_ids: dict[int, str]
    needed: set[str]
    """What running attempts have resumed from, or trials would resume from, whether or not it is in `verdicts`."""
    is_waiting: bool
    """Whether a trial has only just ended, so that the plan changes without an event."""

    @property
    def removed(self) -> list[RetainedCheckpoint]:
        return [one.checkpoint for one in self.verdicts if not one.is_kept]


def plan_of(session: Session, experiment: ExperimentRow, rules: CheckpointsSpec | None = None) -> Plan:
    """What is to be removed now, and why the rest is kept. `rules`: instead of those of the spec."""
    rules = rules or spec_of(experiment).checkpoints
    points = resume_points(session, retryable_trial_ids(session, experiment.id))
    in_use = uris_in_use(session, experiment.id)
    trial_ids, trials = _trials(session, experiment, rules, points)
    verdicts = retention_plan(_rules(experiment, rules), trials, _saved(session, experiment), in_use)
    needed = in_use | {point.uri for point in points.values()}
    return Plan(verdicts, trial_ids, needed, any(not trial.has_settled for trial in trials))


def _rules(experiment: ExperimentRow, rules: CheckpointsSpec) -> RetentionRules:
    objectives = spec_of(experiment).objectives
    ranking = next((one for one in objectives if one.metric == rules.metric), objectives[0])
    is_over = experiment.status not in LIVE_EXPERIMENT
    return RetentionRules(rules.keep, rules.keep_best_trials, rules.keep_last, ranking.direction, is_over)


def _trials(
    session: Session, experiment: ExperimentRow, rules: CheckpointsSpec, points: Mapping[str, ResumePoint]
) -> tuple[dict[int, str], list[RetainedTrial]]:
    """The ids by number, and all trials by number."""
    now, rows = database_now(session), ranked_trials(session, experiment.id)
    names, constrained = objective_names(experiment), bool(constraint_names(experiment))
    metric = rules.metric or names[0]
    is_ranked = [
        row.status in CONTENDERS and row.confirms is None and (not constrained or row.violation == 0) for row in rows
    ]
    front = _front(experiment, [row for row, ranked in zip(rows, is_ranked, strict=True) if ranked])

    def trial(row: RankedTrial, *, ranked: bool) -> RetainedTrial:
        value = row.value if metric == names[0] else (row.values or {}).get(metric)
        return RetainedTrial(
            number=row.number,
            status=TrialStatus(row.status),
            value=value if ranked else None,
            is_on_front=rules.metric is None and row.number in front,
            has_settled=row.ended_at is None or now - row.ended_at >= SETTLED_AFTER,
            resume_uri=points[row.id].uri if row.id in points else None,
        )

    trials = [trial(row, ranked=ranked) for row, ranked in zip(rows, is_ranked, strict=True)]
    return {row.number: row.id for row in rows}, trials


def _front(experiment: ExperimentRow, contenders: Sequence[RankedTrial]) -> set[int]:
    """The numbers of those that no other contender beats, and that no completed trial beats; none with one objective.

    A stopped trial may change if it is retried, so what it beats today may be on the front again.
    """
    completed = [row for row in contenders if row.status == TrialStatus.COMPLETED]
    if len(objective_names(experiment)) == 1:
        return set()
    return {*_unbeaten(experiment, contenders), *_unbeaten(experiment, completed)}


def _unbeaten(experiment: ExperimentRow, rows: Sequence[RankedTrial]) -> Iterator[int]:
    objectives = experiment.spec["objectives"]
    _, *others = objective_names(experiment)
    values = [(row.number, [row.value, *((row.values or {}).get(name) for name in others)]) for row in rows]
    complete = [(number, [one for one in known if one is not None]) for number, known in values if None not in known]
    front = pareto_front([known for _, known in complete], [one["direction"] for one in objectives])
    yield from (complete[index][0] for index in front)


def _saved(session: Session, experiment: ExperimentRow) -> list[RetainedCheckpoint]:
    is_external = spec_of(experiment).trainer.kind is Kind.EXTERNAL

    def agent_of(row: CheckpointRow, number: int, holder: str | None) -> str | None:
        by_slot = run_folder_of(row.uri, run_of(experiment, number, row.attempt)) is not None
        return holder if by_slot and not is_external and holder and not is_caller(holder) else None

    return [
        RetainedCheckpoint(
            trial=number,
            step=row.step,
            attempt=row.attempt,
            sequence=row.sequence,
            uri=row.uri,
            size=row.bytes,
            is_pinned=row.pinned,
            agent=agent_of(row, number, holder),
        )
        for row, number, holder in present_checkpoints(session, experiment.id)
    ]


def remove_unneeded(context: Context, experiment_id: str) -> bool:
    """Remove what the plan removes, some of it if it is much. Returns whether the plan may change without an event.

    The checkpoints' rows, the events and the orders to the agents are one transaction: before it all checkpoints are
    on the storage, and after it the API says which are not, or will soon not be, even if a process is killed then.
    """
    with context.database.read() as session:
        experiment = session.get(ExperimentRow, experiment_id)
        plan = plan_of(session, experiment) if experiment is not None else None
    if plan is None or not plan.removed:
        return plan is not None and plan.is_waiting
    with context.database.write() as session:
        experiment = lock_experiment(session, experiment_id)
        if experiment is None:
            return False
        plan = plan_of(session, experiment)  # again, under the lock
        _remove(session, experiment, plan, context.settings.storage)
    context.new_events.notify()
    return plan.is_waiting or len(plan.removed) > REMOVED_AT_ONCE


def _remove(session: Session, experiment: ExperimentRow, plan: Plan, storage: str) -> None:
    now = database_now(session)
    verdicts = [one for one in plan.verdicts if not one.is_kept][:REMOVED_AT_ONCE]
    removed = {one.checkpoint for one in verdicts}
    left = [one.checkpoint for one in plan.verdicts if one.checkpoint not in removed]
    left_counts = Counter(one.trial for one in left)
    for one in verdicts:
        trial_id = plan.trial_ids[one.checkpoint.trial]
        row = session.get_one(CheckpointRow, (trial_id, one.checkpoint.step))
        row.removed_at, row.removed_why = now, one.why
        count_bytes(experiment, removed=row.bytes)
        data = {"step": row.step, "uri": row.uri, "bytes": row.bytes, "why": one.why}
        data["left_count"] = left_counts[one.checkpoint.trial]
        append_event(session, experiment, "checkpoint.removed", data, at=now, trial_id=trial_id)
    needed = (plan.needed - {one.uri for one in removed}) | {one.uri for one in left}
    reachable = [one for one in removed if not chooses_server(one.uri, storage)]
    _order_deletions(session, experiment, reachable, needed, now)


def _order_deletions(
    session: Session,
    experiment: ExperimentRow,
    removed: Collection[RetainedCheckpoint],
    needed: set[str],
    now: datetime,
) -> None:
    """Of a run without a needed checkpoint the whole folder goes. The agent that saved it can reach the storage."""
    orders: defaultdict[str, set[str]] = defaultdict(set)
    for one in removed:
        folder = run_folder_of(one.uri, run_of(experiment, one.trial, one.attempt))
        if folder is not None and one.agent is not None:  # as for all that the plan removes
            orders[one.agent].add(one.uri if any(is_below(uri, folder) for uri in needed) else folder)
    for agent, directories in orders.items():
        add_deletions(session, [agent], sorted(directories), now)
