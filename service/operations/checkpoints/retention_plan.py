"""What retention does to the checkpoints of an experiment, by what is stored of it now."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from search.pareto import pareto_front
from service.domain.attempt_holders import is_caller
from service.domain.statuses import LIVE_EXPERIMENT, LIVE_TRIAL, TrialStatus
from service.operations.checkpoints.folders import run_folder_of, run_of
from service.operations.checkpoints.retention_rules import (
    SETTLED_SECONDS,
    RetainedCheckpoint,
    RetainedTrial,
    RetentionRules,
    RetentionVerdict,
    retention_verdicts,
)
from service.runtime.caches.experiment_caches import spec_of
from service.specification.spec_sections import CheckpointsSpec
from service.store.checkpoints.checkpoints import RankedTrial, best_of, present_checkpoints, ranked_trials, uris_in_use
from service.store.checkpoints.donated_checkpoints import retryable_trial_ids
from service.store.sql.database import database_now
from service.store.tables import CheckpointRow, ExperimentRow
from service.store.trials.best_trials import possible_winners
from service.store.trials.eligible_for_best import is_eligible_for_best
from service.store.trials.resume_point import ResumePoint, resume_points
from service.store.trials.trial_values import constraint_names, objective_names
from trainer.wire import Kind

SETTLED_AFTER = timedelta(seconds=SETTLED_SECONDS)
"""The time after a trial's end by which Ray has shut its run down, and writes nothing more into its folder."""


@dataclass(frozen=True)
class RetentionFacts:
    """What a plan is computed from: what is stored of the experiment at its event `experiment.event_count`, or later.

    `checkpoints` are those that are present, each with its trial's number and the holder that saved it. `points` are
    what trials would resume from, by their ids, and `in_use` what running attempts have resumed from. `winners` are the
    numbers of the trials that `confirm` runs again, or may come to.
    """

    experiment: ExperimentRow
    rules: CheckpointsSpec
    now: datetime
    points: Mapping[str, ResumePoint]
    in_use: Collection[str]
    trials: Sequence[RankedTrial]
    winners: Collection[int]
    checkpoints: Sequence[tuple[CheckpointRow, int, str | None]]


@dataclass(frozen=True)
class Plan:
    """The verdicts on all checkpoints of an experiment, by trial number and step. `trial_ids` are by number.

    `experiment` is as it was when the facts were read, and `ended` are the ids of the trials that had ended.
    """

    experiment: ExperimentRow
    verdicts: list[RetentionVerdict]
    trial_ids: dict[int, str]
    ended: set[str]
    needed: set[str]
    """What running attempts have resumed from, or trials would resume from, whether or not it is in `verdicts`."""
    is_waiting: bool
    """Whether a trial has only just ended, so that the plan changes without an event."""

    @property
    def removals(self) -> list[RetentionVerdict]:
        return [one for one in self.verdicts if not one.is_kept]


def facts_of(session: Session, experiment: ExperimentRow, rules: CheckpointsSpec | None = None) -> RetentionFacts:
    """Read what is stored. The row `experiment` was read before. `rules`: instead of those of the spec."""
    return RetentionFacts(
        experiment=experiment,
        rules=rules or spec_of(experiment).checkpoints,
        now=database_now(session),
        points=resume_points(session, retryable_trial_ids(session, experiment.id)),
        in_use=uris_in_use(session, experiment.id),
        trials=ranked_trials(session, experiment.id),
        winners=_winners(session, experiment),
        checkpoints=present_checkpoints(session, experiment.id),
    )


def _winners(session: Session, experiment: ExperimentRow) -> set[int]:
    spec = spec_of(experiment)
    return possible_winners(session, experiment, spec.space, spec.confirm.top) if spec.confirm else set()


def plan_of(facts: RetentionFacts) -> Plan:
    """What is to be removed now, and why the rest is kept. It takes a second for 20,000 checkpoints."""
    trials = _trials(facts)
    return Plan(
        experiment=facts.experiment,
        verdicts=retention_verdicts(_rules(facts.experiment, facts.rules), trials, _saved(facts), facts.in_use),
        trial_ids={row.number: row.id for row in facts.trials},
        ended={row.id for row in facts.trials if row.status not in LIVE_TRIAL},
        needed={*facts.in_use, *(point.uri for point in facts.points.values())},
        is_waiting=any(not trial.has_settled for trial in trials),
    )


def _rules(experiment: ExperimentRow, rules: CheckpointsSpec) -> RetentionRules:
    objectives = spec_of(experiment).objectives
    ranking = next((one for one in objectives if one.metric == rules.metric), objectives[0])
    is_over = experiment.status not in LIVE_EXPERIMENT
    return RetentionRules(rules.keep, rules.keep_best_trials, rules.keep_last, ranking.direction, is_over)


def _trials(facts: RetentionFacts) -> list[RetainedTrial]:
    """All trials, by number."""
    experiment, rules, points = facts.experiment, facts.rules, facts.points
    names, constrained = objective_names(experiment), bool(constraint_names(experiment))
    metric = rules.metric or names[0]
    is_ranked = [
        row.confirms is None and is_eligible_for_best(row.status, row.violation, constrained=constrained)
        for row in facts.trials
    ]
    front = _front(experiment, [row for row, ranked in zip(facts.trials, is_ranked, strict=True) if ranked])

    def trial(row: RankedTrial, *, ranked: bool) -> RetainedTrial:
        value = row.value if metric == names[0] else (row.values or {}).get(metric)
        return RetainedTrial(
            number=row.number,
            status=TrialStatus(row.status),
            value=value if ranked else None,
            is_on_front=rules.metric is None and row.number in front,
            has_settled=row.ended_at is None or facts.now - row.ended_at >= SETTLED_AFTER,
            resume_uri=points[row.id].uri if row.id in points else None,
            is_winner=row.number in facts.winners,
        )

    return [trial(row, ranked=ranked) for row, ranked in zip(facts.trials, is_ranked, strict=True)]


def _front(experiment: ExperimentRow, eligible: Sequence[RankedTrial]) -> set[int]:
    """The numbers of those that no other eligible trial, and no completed trial, beats; none with one objective.

    A stopped trial may change if it is retried, so what it beats today may be on the front again.
    """
    completed = [row for row in eligible if row.status == TrialStatus.COMPLETED]
    if len(objective_names(experiment)) == 1:
        return set()
    return {*_unbeaten(experiment, eligible), *_unbeaten(experiment, completed)}


def _unbeaten(experiment: ExperimentRow, rows: Sequence[RankedTrial]) -> Iterator[int]:
    objectives = experiment.spec["objectives"]
    _, *others = objective_names(experiment)
    values = [(row.number, [row.value, *((row.values or {}).get(name) for name in others)]) for row in rows]
    complete = [(number, [one for one in known if one is not None]) for number, known in values if None not in known]
    front = pareto_front([known for _, known in complete], [one["direction"] for one in objectives])
    yield from (complete[index][0] for index in front)


def _best_checkpoints(facts: RetentionFacts) -> set[CheckpointRow]:
    """The best one of each trial; none unless the objective has `report: best`."""
    objective = spec_of(facts.experiment).objective
    if not objective.takes_best:
        return set()
    by_trial: defaultdict[int, list[CheckpointRow]] = defaultdict(list)
    for row, number, _ in facts.checkpoints:
        by_trial[number].append(row)
    found = (best_of(rows, objective.direction) for rows in by_trial.values())
    return {row for row in found if row is not None}


def _saved(facts: RetentionFacts) -> list[RetainedCheckpoint]:
    experiment, best = facts.experiment, _best_checkpoints(facts)
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
            is_best=row in best,
            agent=agent_of(row, number, holder),
        )
        for row, number, holder in facts.checkpoints
    ]
