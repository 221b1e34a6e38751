"""The order in which experiments get free capacity."""

from collections.abc import Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from service.domain.end_reasons import CONFIRMED_ENDS, ENDS_THAT_LET_TRIALS_RUN
from service.domain.statuses import ExperimentStatus, TrialStatus
from service.store.tables import ExperimentRow, TrialRow

PAGE = 20
"""The number of experiments read at a time when it is not known how many are needed."""


def startable_experiment_ids(session: Session) -> list[Sequence[str]]:
    """Experiments that may start trials, the next in line first: by priority, then fewest running trials, then age.

    In pages: the first page is mostly enough, and reading a thousand specs takes 0.1 s.
    """
    running = (
        select(func.count())
        .where(TrialRow.experiment_id == ExperimentRow.id, TrialRow.status == TrialStatus.RUNNING)
        .scalar_subquery()
    )
    query = select(ExperimentRow.id).where(
        ExperimentRow.status == ExperimentStatus.RUNNING,
        or_(
            ExperimentRow.end_reason.is_(None),
            ExperimentRow.end_reason.in_(ENDS_THAT_LET_TRIALS_RUN),
            ExperimentRow.end_reason.in_(CONFIRMED_ENDS)
            & ExperimentRow.spec[("confirm", "top")].as_string().is_not(None),
        ),
    )
    ids = session.scalars(query.order_by(ExperimentRow.priority.desc(), running, ExperimentRow.created_at)).all()
    return [ids[first : first + PAGE] for first in range(0, len(ids), PAGE)]
