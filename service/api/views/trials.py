"""Trials as the API shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from sqlalchemy.orm import Session

from search.early_stopping import Rule
from search.early_stopping.rules.hyperband import Hyperband
from service.api.views.attempts import AttemptView, GenerationView
from service.api.views.confirmation import ConfirmationView
from service.api.views.costs import CostView
from service.api.views.rows import RowView, View
from service.operations.attempts.attempt_cost import cost_of
from service.runtime.caches.experiment_caches import spec_of
from service.store.attempts import attempts_of, running_since
from service.store.checkpoints.checkpoints import best_checkpoints, bytes_of_trials
from service.store.early_stopping.history import stored_bracket_of
from service.store.sql.database import database_now
from service.store.tables import CheckpointRow, ExperimentRow, TrialRow
from service.store.trials.newest_checkpoints import newest_checkpoints
from service.store.trials.param_generations import generations_of
from service.store.trials.trial_values import constraint_values, is_feasible, objective_values, only_value


class CheckpointView(RowView):
    """A directory that was saved with a report."""

    uri: str
    """where it is"""
    step: int
    """the step that it was saved at"""
    attempt: int
    """the number of the attempt that saved it"""
    value: float | None
    """what this attempt has reported for the first objective at the step; null if it has not, or it is not known"""
    at: datetime
    """when it was reported"""
    bytes: int | None
    """the size of all of its files; null if it is not known"""
    pinned: bool
    """whether it is kept until its experiment is deleted, whatever the spec says"""
    removed_at: datetime | None
    """since when it is no longer on the storage; null: it is there"""
    removed_why: str | None
    """why it has been removed"""


class TrialView(View):
    """One configuration of an experiment, and what became of it."""

    id: str
    """the trial's id"""
    experiment_id: str
    """the id of its experiment"""
    number: int
    """counts the trials of the experiment from 0"""
    status: str
    """`queued`, `running`, `paused`, `completed`, `pruned`, `failed` or `stopped`"""
    reason: str | None
    """why it ended, or is queued again"""
    failure_kind: str | None
    """the kind of failure that it ended with; null unless it has failed"""
    params: dict[str, Any]
    """its configuration"""
    values: dict[str, float | None]
    """the value of each objective, by metric: its newest, or with `report: best` its best one"""
    value: float | None
    """the value of the only objective; null with several"""
    best_step: int | None
    """with `report: best`, the step of the report that has this value; null otherwise"""
    constraints: dict[str, float | None] | None
    """the newest value of each constraint's metric; null without constraints"""
    feasible: bool | None
    """whether it satisfies the constraints; null without constraints, and while a running trial lacks a metric"""
    step: int | None
    """the step of its newest report"""
    origin: str
    """where its params come from: `search`, `enqueue` or `confirm`"""
    source: str | None
    """what the params were taken from: `start_up` (a draw before the model has enough trials), `model`, `grid`,
    `sequence` (of qmc), `random`, `prior`, `incumbent` (close to the best trial so far, if there are priors),
    `warm_start` (from an earlier experiment), `user`, or `confirmation` (another trial's, to run again with another
    seed); null in a trial of an earlier version"""
    confirms: int | None
    """the number of the trial whose params it runs again; null unless it is a confirmation"""
    seed: int | None
    """the `config.seed` that its training function gets; null without `confirm` in the spec"""
    stopping: str | None
    """why it has been asked to stop, while it still runs"""
    attempt_count: int
    """how often it was started"""
    checkpoint: CheckpointView | None
    """its newest checkpoint that is on the storage and was saved with its present params; with `report: best`, the one
    with the best value"""
    checkpoint_bytes: int | None
    """the size of all of its checkpoints, as far as it is known; null if that of none is"""
    created_at: datetime
    """when it was created"""
    started_at: datetime | None
    """when its first attempt started"""
    running_since: datetime | None
    """when its present attempt started; null unless it runs"""
    ended_at: datetime | None
    """when it ended"""
    cost: CostView | None
    """where the time of its attempts went; null before the first of them has ended"""

    @classmethod
    def of(
        cls,
        experiment: ExperimentRow,
        row: TrialRow,
        checkpoint: CheckpointRow | None,
        checkpoint_bytes: int | None,
        running_since: datetime | None,
    ) -> Self:
        values = objective_values(experiment, row)
        return cls(
            id=row.id,
            experiment_id=row.experiment_id,
            number=row.number,
            status=row.status,
            reason=row.reason,
            failure_kind=row.failure_kind,
            params=row.params,
            values=values,
            value=only_value(values),
            best_step=row.best_step,
            constraints=constraint_values(experiment, row),
            feasible=is_feasible(experiment, row),
            step=row.last_step,
            origin=row.origin,
            source=row.source,
            confirms=row.confirms,
            seed=row.seed,
            stopping=row.stop_reason if row.ended_at is None else None,
            attempt_count=row.attempt_count,
            checkpoint=CheckpointView.of(checkpoint) if checkpoint else None,
            checkpoint_bytes=checkpoint_bytes,
            created_at=row.created_at,
            started_at=row.started_at,
            running_since=running_since,
            ended_at=row.ended_at,
            cost=CostView.of_sum(row.cost),
        )


class WarmStartView(View):
    """What earlier experiments have to do with the params of a trial."""

    weights: dict[str, float]
    """for each earlier experiment, how well it had predicted the ranks of the trials before, from 0 to 1"""
    experiment: str | None
    """the one that the params come from; null if they are not from an earlier experiment"""


class EstimateView(View):
    """What the sampler's model expected of a trial when it proposed it, in units of the objective."""

    model: str
    """the model: `gp`, which expects a value, or `tpe`, which tells good configurations from others; a sampler of your
    own may name another one"""
    value: float | None = None
    """the value that `gp` expected; null of `tpe`"""
    low: float | None = None
    """one standard deviation below it, as the model believed; null of `tpe`"""
    high: float | None = None
    """one standard deviation above it; null of `tpe`"""
    improvement_probability: float | None = None
    """how likely its value was better than the best one that `gp` expected of an earlier trial, under constraints of a
    feasible one and by the objective alone; null without such a trial, and of `tpe`"""
    good_probability: float | None = None
    """how likely `tpe` took it to be as good as the best `good_share` of the earlier trials; null of `gp`"""
    good_share: float | None = None
    """the part of the earlier trials that `tpe` counted as good; null of `gp`"""


class BracketView(View):
    """The bracket of `hyperband` that a trial is compared in, and why it got that one."""

    number: int
    """counts the brackets from 0, which has the lowest first rung"""
    first_step: int
    """the step of its first rung"""
    share: float | None
    """the part of new trials that the bracket got when the trial was created; null if the bracket follows from the
    trial's number"""
    weight: float | None
    """by how much its share is multiplied because of `agreement`: 1 without evidence; null as `share`"""
    agreement: float | None
    """how well the ranks at its first rung agreed with those at the end, from -1 to 1; null as `share`, and for a
    bracket that stops no trial before its end"""
    trial_count: int | None
    """how many completed trials that was computed from; null as `share`"""

    @classmethod
    def of(cls, rule: Rule, row: TrialRow) -> Self | None:
        """None for a confirmation, and for a rule without brackets."""
        if not isinstance(rule, Hyperband) or row.confirms is not None:
            return None
        drawn = row.bracket if rule.weighted else None
        number = rule.bracket_of(row.number, stored_bracket_of(row))
        empty = dict.fromkeys(("share", "weight", "agreement", "trial_count"))
        return cls(**{**empty, **(drawn or {}), "number": number, "first_step": rule.first_rung(number)})


class TrialDetail(TrialView):
    """A trial with its attempts and generations."""

    bracket: BracketView | None
    """the bracket of `hyperband` that it is compared in; null under other rules"""
    estimate: EstimateView | None
    """what the sampler's model expected of it; null if no model proposed it, or one that expects nothing in particular,
    and in a trial of an earlier version"""
    warm_start: WarmStartView | None
    """what earlier experiments have to do with its params; null if none were weighed"""
    attempts: list[AttemptView]
    """each execution, and why it ended"""
    generations: list[GenerationView]
    """the params that it trained with, if there were several; otherwise empty"""
    confirmation: ConfirmationView | None
    """in the answer of `/best`, what the confirmations of the experiment have shown; null elsewhere, and without
    `confirm` in the spec"""


def shown_checkpoints(
    session: Session, experiment: ExperimentRow, trial_ids: Sequence[str]
) -> Mapping[str, CheckpointRow]:
    """The checkpoint of each trial that has one: its newest, or with `report: best` its best one."""
    newest, objective = newest_checkpoints(session, trial_ids), spec_of(experiment).objective
    if not objective.takes_best:
        return newest
    return {**newest, **best_checkpoints(session, trial_ids, objective.direction)}


def trial_detail(session: Session, row: TrialRow, confirmation: ConfirmationView | None = None) -> TrialDetail:
    experiment, generations = session.get_one(ExperimentRow, row.experiment_id), generations_of(session, row.id)
    spec, now = spec_of(experiment), database_now(session)
    scaling = spec.trainer.scaling
    size = bytes_of_trials(session, [row.id]).get(row.id, 0)
    attempts = attempts_of(session, row.id)
    since = next((attempt.started_at for attempt in attempts if attempt.ended_at is None), None)
    return TrialDetail(
        **dict(
            TrialView.of(experiment, row, shown_checkpoints(session, experiment, [row.id]).get(row.id), size, since)
        ),
        bracket=BracketView.of(spec.early_stopping, row),
        attempts=[
            AttemptView.of(attempt, row, generations, scaling, cost_of(attempt, scaling, now)) for attempt in attempts
        ],
        estimate=None if row.estimate is None else EstimateView(**row.estimate),
        warm_start=None if row.warm_start is None else WarmStartView(**row.warm_start),
        generations=[GenerationView.of(generation) for generation in generations],
        confirmation=confirmation,
    )


def trial_views(session: Session, rows: Sequence[TrialRow]) -> list[TrialView]:
    """In the order of `rows`, with as many queries for one as for all of them."""
    ids = [row.id for row in rows]
    sizes, since = bytes_of_trials(session, ids), running_since(session, ids)
    experiments = {key: session.get_one(ExperimentRow, key) for key in {row.experiment_id for row in rows}}
    checkpoints = {
        trial_id: checkpoint
        for key, experiment in experiments.items()
        for trial_id, checkpoint in shown_checkpoints(
            session, experiment, [row.id for row in rows if row.experiment_id == key]
        ).items()
    }
    return [
        TrialView.of(
            experiments[row.experiment_id], row, checkpoints.get(row.id), sizes.get(row.id, 0), since.get(row.id)
        )
        for row in rows
    ]
