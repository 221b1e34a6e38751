"""Queries for an experiment's best trial or its Pareto front, among the trials that are eligible for it."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVarTuple

from sqlalchemy import CompoundSelect, Select, select, union_all
from sqlalchemy.orm import Session

from search.problem import Direction, sign_of
from search.space.configuration_key import Key, key_of
from search.space.space import Space
from service.domain.statuses import ELIGIBLE_FOR_BEST, TrialStatus
from service.store.tables import ExperimentRow, TrialRow
from service.store.trials.best_first import best_first
from service.store.trials.confirmations import confirmed_trials, confirmed_winners
from service.store.trials.eligible_for_best import eligible_for_best
from service.store.trials.ended_trials import have_run_to_completion
from service.store.trials.trial_values import constraint_names, objective_names

Row = TypeVarTuple("Row")

PAGE = 100
"""The number of trials read at a time when it is not known how many are needed."""


def best_trial(session: Session, experiment: ExperimentRow) -> TrialRow | None:
    """The best by the first objective; of equal trials the one with the lowest number.

    If it has `confirm`, the winner of the confirmations as soon as all of them have ended.
    """
    return best_trials(session, [experiment]).get(experiment.id)


def best_trials(session: Session, experiments: Sequence[ExperimentRow]) -> dict[str, TrialRow]:
    """Like `best_trial`, keyed by experiment id, with one query per direction."""
    groups: defaultdict[tuple[Direction, bool], list[str]] = defaultdict(list)
    for one in experiments:
        groups[one.spec["objectives"][0]["direction"], bool(constraint_names(one))].append(one.id)
    best: dict[str, TrialRow] = {}
    for (direction, constrained), ids in groups.items():
        query = select(TrialRow).where(TrialRow.id.in_(_best_ids(direction, constrained, ids)))
        rows = session.scalars(query.order_by(*best_first(direction))).all()
        best |= {row.experiment_id: row for row in reversed(rows)}  # the better of the best of each status
    return best | confirmed_winners(session, experiments)


def best_configurations(session: Session, experiment: ExperimentRow, space: Space, count: int) -> list[TrialRow]:
    """The best trials of the search with different params, best first."""
    found: dict[Key, int] = {}
    for number, params, _ in _best_first(session, experiment):
        found.setdefault(key_of(space, params), number)
        if len(found) == count:
            break
    return trials_by_number(session, experiment, list(found.values()))


def possible_winners(session: Session, experiment: ExperimentRow, space: Space, count: int) -> set[int]:
    """The numbers of the trials that have been confirmed, or are or may come to be among the `best_configurations`.

    Trials that ran to their ends displace others. When the experiment has ended, none may come to be among them.
    """
    winners = {trial.number for trial in confirmed_trials(session, [experiment.id])}
    if experiment.ended_at is not None:
        return winners | {trial.number for trial in best_configurations(session, experiment, space, count)}
    at_end: set[Key] = set()
    for number, params, is_at_end in _best_first(session, experiment):
        key = key_of(space, params)
        if key not in at_end:
            winners.add(number)
        if is_at_end:
            at_end.add(key)
        if len(at_end) == count:
            break
    return winners


def _best_first(session: Session, experiment: ExperimentRow) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """The number and params of each eligible trial, and whether it ran to its end, read page by page."""
    query = _feasible(experiment, select(TrialRow.number, TrialRow.params, have_run_to_completion()))
    query = query.order_by(*best_first(experiment.spec["objectives"][0]["direction"])).limit(PAGE)
    for offset in itertools.count(0, PAGE):
        page = session.execute(query.offset(offset)).all()
        yield from ((number, params, bool(is_at_end)) for number, params, is_at_end in page)
        if len(page) < PAGE:
            return


def front_of(session: Session, experiment: ExperimentRow) -> list[tuple[float, int]]:
    """First value and number of each trial that no other trial beats in every objective, best first."""
    directions = [one["direction"] for one in experiment.spec["objectives"]]
    _, *others = objective_names(experiment)
    from search.pareto import pareto_front  # noqa: PLC0415 - slow, and not needed for a report

    found = session.execute(_feasible(experiment, select(TrialRow.number, TrialRow.value, TrialRow.values))).all()
    rows = [(number, [value, *(values.get(name) for name in others)]) for number, value, values in found if values]
    complete = [(number, values) for number, values in rows if None not in values]
    front = [complete[index] for index in pareto_front([values for _, values in complete], directions)]
    sign = sign_of(directions[0])
    return sorted(((values[0], number) for number, values in front), key=lambda one: (sign * one[0], one[1]))


def trials_by_number(session: Session, experiment: ExperimentRow, numbers: Sequence[int]) -> list[TrialRow]:
    """In the order of `numbers`."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment.id, TrialRow.number.in_(numbers))
    rows = {row.number: row for row in session.scalars(query)}
    return [rows[number] for number in numbers]


def nearest_to_feasible(session: Session, experiment: ExperimentRow) -> TrialRow | None:
    """The infeasible trial with the smallest violation. None without constraints."""
    if not constraint_names(experiment):
        return None
    infeasible = *eligible_for_best(constrained=False), TrialRow.violation > 0
    query = select(TrialRow).where(TrialRow.experiment_id == experiment.id, *infeasible)
    return session.scalar(query.order_by(TrialRow.violation, TrialRow.number).limit(1))


def _best_ids(direction: Direction, constrained: bool, experiment_ids: Collection[str]) -> CompoundSelect[str]:
    """The ids of each experiment's best trial in each status. Each is the first entry of an index."""

    def best(status: TrialStatus) -> Select[str]:
        query = select(TrialRow.id).where(
            TrialRow.experiment_id == ExperimentRow.id,
            *eligible_for_best(constrained=constrained, by_status=TrialRow.status == status),
        )
        first = query.order_by(*best_first(direction)).limit(1).correlate(ExperimentRow).scalar_subquery()
        return select(first).where(ExperimentRow.id.in_(experiment_ids))

    return union_all(*(best(status) for status in ELIGIBLE_FOR_BEST))


def _feasible(experiment: ExperimentRow, query: Select[*Row]) -> Select[*Row]:
    conditions = eligible_for_best(constrained=bool(constraint_names(experiment)))
    return query.where(TrialRow.experiment_id == experiment.id, *conditions)
