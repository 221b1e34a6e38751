"""The newest checkpoint of each trial."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store.checkpoints.checkpoints import is_present
from service.store.tables import CheckpointRow, TrialRow
from service.store.trials.param_generations import of_newest_generation


def newest_checkpoints(session: Session, trial_ids: Sequence[str]) -> Mapping[str, CheckpointRow]:
    """The newest checkpoint that each trial saved with its present params, by trial."""
    newest = (
        select(CheckpointRow.step)
        .where(CheckpointRow.trial_id == TrialRow.id, is_present(), of_newest_generation())
        .order_by(CheckpointRow.step.desc())
        .limit(1)
        .correlate(TrialRow)
        .scalar_subquery()
    )
    its_newest = (CheckpointRow.trial_id == TrialRow.id) & (CheckpointRow.step == newest)
    query = select(CheckpointRow).join(TrialRow, its_newest).where(TrialRow.id.in_(trial_ids))
    return {row.trial_id: row for row in session.scalars(query)}
