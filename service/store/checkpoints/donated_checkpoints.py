"""Checkpoints that trials of ended experiments have resumed from and that other trials had saved (PBT's exploit)."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.checkpoints.checkpoints import is_present
from service.store.tables import CheckpointRow, GenerationRow, TrialRow


def donations(session: Session, experiment_id: str) -> set[str]:
    """The URIs of all checkpoints that another trial resumed from."""
    query = select(GenerationRow.resume_uri).join(TrialRow, TrialRow.id == GenerationRow.trial_id)
    query = query.where(TrialRow.experiment_id == experiment_id, GenerationRow.resume_uri.is_not(None))
    return {uri for uri in session.scalars(query) if uri is not None}


def known_checkpoints(session: Session, experiment_id: str) -> set[str]:
    """The URIs of all checkpoints that retention has not removed."""
    query = select(CheckpointRow.uri).join(TrialRow, TrialRow.id == CheckpointRow.trial_id)
    return set(session.scalars(query.where(TrialRow.experiment_id == experiment_id, is_present())))


def retryable_trial_ids(session: Session, experiment_id: str) -> Sequence[str]:
    """The trials that a user may retry, should the experiment be reopened."""
    over = [TrialStatus.COMPLETED, TrialStatus.PRUNED]
    query = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id, TrialRow.status.not_in(over))
    return session.scalars(query).all()
