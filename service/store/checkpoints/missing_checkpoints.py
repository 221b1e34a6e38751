"""Checkpoints that are recorded, and that attempts have not found on the storage: someone may have deleted them."""

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.store.tables import AttemptRow, CheckpointRow

MISSES = 2
"""How many attempts of a trial must miss a checkpoint until it counts as gone. One may have been on a node that sees
another state of the storage, such as by the cached listing of a share."""


def missing_checkpoints(session: Session, trial_ids: Collection[str]) -> set[tuple[str, str]]:
    """The trials and URIs of checkpoints from which `MISSES` attempts of the trial could not resume.

    What a slot saves at the same step has another URI. A caller of `kind: external` may use the same one again: what it
    has saved since is not missing.
    """
    saved_since = select(CheckpointRow.uri).where(
        CheckpointRow.trial_id == AttemptRow.trial_id,
        CheckpointRow.uri == AttemptRow.resume_uri,
        CheckpointRow.attempt >= AttemptRow.number,
    )
    is_missing = AttemptRow.failure["is_checkpoint_missing"].as_boolean()
    query = (
        select(AttemptRow.trial_id, AttemptRow.resume_uri)
        .where(AttemptRow.trial_id.in_(trial_ids), AttemptRow.resume_uri.is_not(None), is_missing.is_(True))
        .where(~saved_since.exists())
        .group_by(AttemptRow.trial_id, AttemptRow.resume_uri)
        .having(func.count() >= MISSES)
    )
    return {(trial_id, uri) for trial_id, uri in session.execute(query) if uri is not None}


def uncounted_checkpoints(session: Session, attempt: AttemptRow) -> set[str]:
    """The URIs of the trial's missing checkpoints, which do not count for `checkpoints.keep` while the attempt runs.

    The attempt's slot does not have them from its assignment, so it removes none of them. They do not change while the
    attempt runs. The one that the attempt resumes from counts: it is tried although it is missing if no other one is
    left.
    """
    if attempt.number <= MISSES:
        return set()
    return {uri for _, uri in missing_checkpoints(session, [attempt.trial_id])} - {attempt.resume_uri or ""}
