"""The best of an experiment's trials, or its Pareto front: of the feasible ones that ran to an end."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TypeVarTuple

from sqlalchemy import CompoundSelect, Select, select, union_all
from sqlalchemy.orm import Session

from search.analysis.pareto import pareto_front
from search.problem import Direction, sign_of
from service.domain.statuses import CONTENDERS, TrialStatus
from service.store.tables import ExperimentRow, TrialRow
from service.store.trial_values import best_first, constraint_names, objective_names

Row = TypeVarTuple("Row")


def best_trial(session: Session, experiment: ExperimentRow) -> TrialRow | None:
    """By the first objective; of equals the one with the lowest number."""
    return best_trials(session, [experiment]).get(experiment.id)


def best_trials(session: Session, experiments: Sequence[ExperimentRow]) -> dict[str, TrialRow]:
    """As `best_trial`, by experiment."""
    alike: defaultdict[tuple[Direction, bool], list[str]] = defaultdict(list)
    for one in experiments:
        alike[_direction(one), bool(constraint_names(one))].append(one.id)
    best: dict[str, TrialRow] = {}
    for (direction, constrained), ids in alike.items():
        query = select(TrialRow).where(TrialRow.id.in_(_bests(direction, constrained, ids)))
        # Of the best of each status, the better one.
        best |= {
            row.experiment_id: row for row in reversed(session.scalars(query.order_by(*best_first(direction))).all())
        }
    return best


def front_of(session: Session, experiment: ExperimentRow) -> list[tuple[float, int]]:
    """The trials that no other one beats in every objective: value of the first objective and number, best first."""
    directions = [one["direction"] for one in experiment.spec["objectives"]]
    _, *others = objective_names(experiment)
    found = session.execute(_feasible(experiment, select(TrialRow.number, TrialRow.value, TrialRow.values))).all()
    rows = [(number, [value, *(values.get(name) for name in others)]) for number, value, values in found if values]
    whole = [(number, values) for number, values in rows if None not in values]
    front = [whole[place] for place in pareto_front([values for _, values in whole], directions)]
    sign = sign_of(directions[0])
    return sorted(((values[0], number) for number, values in front), key=lambda one: (sign * one[0], one[1]))


def trials_by_number(session: Session, experiment: ExperimentRow, numbers: Sequence[int]) -> list[TrialRow]:
    """In the order of `numbers`."""
    query = select(TrialRow).where(TrialRow.experiment_id == experiment.id, TrialRow.number.in_(numbers))
    rows = {row.number: row for row in session.scalars(query)}
    return [rows[number] for number in numbers]


def nearest_to_feasible(session: Session, experiment: ExperimentRow) -> TrialRow | None:
    """Of those that broke a constraint, the one that broke them by the least. None without constraints."""
    if not constraint_names(experiment):
        return None
    query = _ended_well(experiment, select(TrialRow)).where(TrialRow.violation > 0)
    return session.scalar(query.order_by(TrialRow.violation, TrialRow.number).limit(1))


def _direction(experiment: ExperimentRow) -> Direction:
    direction: Direction = experiment.spec["objectives"][0]["direction"]
    return direction


def _bests(direction: Direction, constrained: bool, experiment_ids: Collection[str]) -> CompoundSelect[str]:
    """The ids of each experiment's best trial of each status: each is the first of an index, however many there are."""

    def best(status: TrialStatus) -> Select[str]:
        query = select(TrialRow.id).where(
            TrialRow.experiment_id == ExperimentRow.id, TrialRow.status == status, TrialRow.value.is_not(None)
        )
        if constrained:
            query = query.where(TrialRow.violation == 0)
        first = query.order_by(*best_first(direction)).limit(1).correlate(ExperimentRow).scalar_subquery()
        return select(first).where(ExperimentRow.id.in_(experiment_ids))

    return union_all(*(best(status) for status in CONTENDERS))


def _feasible(experiment: ExperimentRow, query: Select[*Row]) -> Select[*Row]:
    query = _ended_well(experiment, query)
    return query.where(TrialRow.violation == 0) if constraint_names(experiment) else query


def _ended_well(experiment: ExperimentRow, query: Select[*Row]) -> Select[*Row]:
    return query.where(
        TrialRow.experiment_id == experiment.id, TrialRow.status.in_(CONTENDERS), TrialRow.value.is_not(None)
    )
