"""The best of an experiment's trials, or its Pareto front: of the feasible ones that ran to an end."""

from collections.abc import Sequence
from typing import TypeVarTuple

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from search.pareto import pareto_front
from search.problem import sign_of
from service.domain.statuses import CONTENDERS
from service.store.tables import ExperimentRow, TrialRow
from service.store.values import best_first, constraint_names, objective_names

Row = TypeVarTuple("Row")


def best_trial(session: Session, experiment: ExperimentRow) -> TrialRow | None:
    """By the first objective; of equals the one with the lowest number."""
    order = best_first(experiment.spec["objectives"][0]["direction"])
    return session.scalar(_feasible(experiment, select(TrialRow)).order_by(*order).limit(1))


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


def _feasible(experiment: ExperimentRow, query: Select[*Row]) -> Select[*Row]:
    query = _ended_well(experiment, query)
    return query.where(TrialRow.violation == 0) if constraint_names(experiment) else query


def _ended_well(experiment: ExperimentRow, query: Select[*Row]) -> Select[*Row]:
    return query.where(
        TrialRow.experiment_id == experiment.id, TrialRow.status.in_(CONTENDERS), TrialRow.value.is_not(None)
    )
