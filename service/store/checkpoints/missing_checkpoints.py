"""Checkpoints that are recorded, and that attempts have not found on the storage: someone may have deleted them."""

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.store.tables import AttemptRow

MISSES = 2
"""How many attempts of a trial must miss a checkpoint until it counts as gone. One may have been on a node that sees
another state of the storage, such as by the cached listing of a share."""


def missing_checkpoints(session: Session, trial_ids: Collection[str]) -> set[tuple[str, str]]:
    """The trials and URIs of checkpoints from which `MISSES` attempts of the trial could not resume.

    A pure function of the attempts. What a later attempt saves at the same step has another URI.
    """
    is_missing = AttemptRow.failure["is_checkpoint_missing"].as_boolean()
    query = (
        select(AttemptRow.trial_id, AttemptRow.resume_uri)
        .where(AttemptRow.trial_id.in_(trial_ids), AttemptRow.resume_uri.is_not(None), is_missing.is_(True))
        .group_by(AttemptRow.trial_id, AttemptRow.resume_uri)
        .having(func.count() >= MISSES)
    )
    return {(trial_id, uri) for trial_id, uri in session.execute(query) if uri is not None}
