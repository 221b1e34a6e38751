"""The checkpoint that a trial continues from: its own newest one, or its donor's."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from service.store.checkpoints.checkpoints import is_present
from service.store.checkpoints.missing_checkpoints import missing_checkpoints
from service.store.tables import CheckpointRow, GenerationRow, TrialRow
from service.store.trials.param_generations import of_newest_generation


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint that a trial continues from, and the step that it holds."""

    uri: str
    step: int


def resume_points(session: Session, trial_ids: Collection[str]) -> dict[str, ResumePoint]:
    """The newest checkpoint of each trial, or its donor's until it has saved one. Trials without either are left out.

    Missing ones are left out while another one remains. If none does, the newest is tried again: a trial does not begin
    anew because the storage has lost its checkpoints, or because its nodes do not share the storage. Nothing keeps the
    donor's for a trial that has saved its own ones, so then it remains only while it is still listed.
    """
    donated, saved = _donated(session, trial_ids), _saved(session, trial_ids)
    missing = missing_checkpoints(session, trial_ids)
    found = dict(donated)
    back_to_donor = []
    for trial_id, points in saved.items():
        there = [point for point in points if (trial_id, point.uri) not in missing]
        found[trial_id] = (there or points)[-1]
        if not there and trial_id in donated and (trial_id, donated[trial_id].uri) not in missing:
            back_to_donor.append(trial_id)
    for trial_id, uri in _listed_beside(session, {id_: donated[id_].uri for id_ in back_to_donor}):
        if donated[trial_id].uri == uri:
            found[trial_id] = donated[trial_id]
    return found


def _donated(session: Session, trial_ids: Collection[str]) -> dict[str, ResumePoint]:
    """The donor's checkpoint that each trial's present params began with, by trial."""
    newest = (
        select(GenerationRow.trial_id, func.max(GenerationRow.number).label("number"))
        .where(GenerationRow.trial_id.in_(trial_ids))
        .group_by(GenerationRow.trial_id)
        .subquery()
    )
    is_newest = (GenerationRow.trial_id == newest.c.trial_id) & (GenerationRow.number == newest.c.number)
    query = select(GenerationRow.trial_id, GenerationRow.resume_uri, GenerationRow.resume_step).join(newest, is_newest)
    return {
        trial_id: ResumePoint(uri, step)
        for trial_id, uri, step in session.execute(query)
        if uri is not None and step is not None
    }


def _saved(session: Session, trial_ids: Collection[str]) -> Mapping[str, Sequence[ResumePoint]]:
    """The own checkpoints of each trial with its present params, by their steps."""
    query = select(CheckpointRow.trial_id, CheckpointRow.uri, CheckpointRow.step).where(
        CheckpointRow.trial_id.in_(trial_ids), is_present(), of_newest_generation()
    )
    found: defaultdict[str, list[ResumePoint]] = defaultdict(list)
    for trial_id, uri, step in session.execute(query.order_by(CheckpointRow.step)):
        found[trial_id].append(ResumePoint(uri, step))
    return found


def _listed_beside(session: Session, uris: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Which of these URIs are checkpoints of trials of the same experiment, with the given trials. `uris` is by trial.

    The donor may have passed on another trial's checkpoint.
    """
    if not uris:
        return []
    heir, owner = aliased(TrialRow), aliased(TrialRow)
    query = (
        select(heir.id, CheckpointRow.uri)
        .join(owner, owner.experiment_id == heir.experiment_id)
        .join(CheckpointRow, CheckpointRow.trial_id == owner.id)
        .where(heir.id.in_(list(uris)), CheckpointRow.uri.in_(set(uris.values())), is_present())
    )
    return [(trial_id, uri) for trial_id, uri in session.execute(query)]


def resume_point(session: Session, trial_id: str) -> ResumePoint | None:
    """As `resume_points`, for one trial; None if it starts from the beginning."""
    return resume_points(session, [trial_id]).get(trial_id)
