"""Queries on the reports of trials: of their curves, and those that are no part of them."""

from collections.abc import Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from search.problem import Direction
from service.store.tables import ReportRow, TrialRow, UncountedReportRow


def reports_of(session: Session, trial_id: str, after_step: int, limit: int) -> Sequence[ReportRow]:
    query = select(ReportRow).where(ReportRow.trial_id == trial_id, ReportRow.step > after_step)
    return session.scalars(query.order_by(ReportRow.step).limit(limit)).all()


def reports_of_experiment(
    session: Session, experiment_id: str, after: tuple[int, int], limit: int
) -> list[tuple[int, ReportRow]]:
    """The reports after a trial's number and a step, by these, each with the number of its trial."""
    number, step = after
    query = select(TrialRow.number, ReportRow).join(ReportRow, ReportRow.trial_id == TrialRow.id)
    query = query.where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.number, ReportRow.step)
    # Two queries, because no index has the order of both tables from the middle of a trial on.
    rest = query.where(TrialRow.number == number, ReportRow.step > step).limit(limit)
    found = [(number, row) for number, row in session.execute(rest)]
    if len(found) < limit:
        further = query.where(TrialRow.number > number).limit(limit - len(found))
        found += [(number, row) for number, row in session.execute(further)]
    return found


def best_report_of(session: Session, trial_id: str, direction: Direction) -> tuple[float | None, int | None]:
    """The best value of the first objective with its step: the first step of those that tie."""
    by_value = ReportRow.value.asc() if direction == "minimize" else ReportRow.value.desc()
    query = select(ReportRow.value, ReportRow.step).where(ReportRow.trial_id == trial_id, ReportRow.value.is_not(None))
    found = session.execute(query.order_by(by_value, ReportRow.step).limit(1)).first()
    return (found.value, found.step) if found else (None, None)


def uncounted_reports_of(
    session: Session, trial_id: str, after: tuple[int, int], limit: int
) -> Sequence[UncountedReportRow]:
    """In the order of attempts and of their reports, those after an attempt and a sequence."""
    order = UncountedReportRow.attempt, UncountedReportRow.sequence
    query = select(UncountedReportRow).where(UncountedReportRow.trial_id == trial_id, tuple_(*order) > tuple_(*after))
    return session.scalars(query.order_by(*order).limit(limit)).all()
