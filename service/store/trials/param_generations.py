"""Generations of a trial: the params that it trained with, one after the other, and the checkpoints it resumed from."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, aliased

from service.domain.statuses import TrialStatus
from service.store.checkpoints.checkpoints import is_present
from service.store.checkpoints.missing_checkpoints import missing_checkpoints
from service.store.tables import CheckpointRow, GenerationRow, ReportRow, TrialRow


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint that a trial continues from, and the step that it holds."""

    uri: str
    step: int


@dataclass(frozen=True)
class Exploit:
    """At `event`, a trial took over another trial's checkpoint. `milestone` is the last one at which it was judged."""

    event: int
    milestone: int

    def discards(self, event: int, step: int) -> bool:
        """Whether the report with this event and step was made with weights that the exploit replaced."""
        return event < self.event and step > self.milestone


def generations_of(session: Session, trial_id: str) -> Sequence[GenerationRow]:
    """In their order; empty for a trial that always had its own params."""
    return generations_of_all(session, [trial_id]).get(trial_id, [])


def generations_of_all(session: Session, trial_ids: Collection[str]) -> Mapping[str, Sequence[GenerationRow]]:
    """As `generations_of`, by trial."""
    query = select(GenerationRow).where(GenerationRow.trial_id.in_(trial_ids))
    found: defaultdict[str, list[GenerationRow]] = defaultdict(list)
    for row in session.scalars(query.order_by(GenerationRow.number)):
        found[row.trial_id].append(row)
    return found


def first_params(session: Session, trials: Collection[TrialRow]) -> list[dict[str, Any]]:
    """The params that each of the trials began with."""
    generations = generations_of_all(session, [trial.id for trial in trials])
    return [generations[trial.id][0].params if trial.id in generations else trial.params for trial in trials]


def exploits_of(session: Session, experiment_id: str) -> Mapping[str, Sequence[Exploit]]:
    """The exploits of each trial, by its id; without trials that always had their own params."""
    query = select(GenerationRow.trial_id, GenerationRow.began_at_event, GenerationRow.milestone).join(
        TrialRow, TrialRow.id == GenerationRow.trial_id
    )
    found: defaultdict[str, list[Exploit]] = defaultdict(list)
    for trial_id, event, milestone in session.execute(query.where(TrialRow.experiment_id == experiment_id)):
        if milestone is not None:
            found[trial_id].append(Exploit(event, milestone))
    return found


def of_newest_generation() -> ColumnElement[bool]:
    """The condition for checkpoints that a trial saved with its present params."""
    first = select(func.max(GenerationRow.first_attempt)).where(GenerationRow.trial_id == CheckpointRow.trial_id)
    return CheckpointRow.attempt >= func.coalesce(first.correlate(CheckpointRow).scalar_subquery(), 0)


def has_own_values(session: Session, trial: TrialRow) -> bool:
    """Whether the trial has reported the first objective with its present params. Until then its values are a donor's.

    A report counts only beyond the step of the checkpoint that the newest generation resumed from.
    """
    if trial.attempt_count == 0 or (trial.attempt_count == 1 and trial.status == TrialStatus.RUNNING):
        return True  # only a later attempt continues from a donor's checkpoint
    query = select(GenerationRow).where(GenerationRow.trial_id == trial.id, GenerationRow.donor.is_not(None))
    newest = session.scalar(query.order_by(GenerationRow.number.desc()).limit(1))
    return newest is None or _has_reported_in(session, newest)


def _has_reported_in(session: Session, generation: GenerationRow) -> bool:
    query = select(ReportRow.step).where(
        ReportRow.trial_id == generation.trial_id,
        ReportRow.step > generation.resume_step,
        ReportRow.attempt >= generation.first_attempt,
        ReportRow.value.is_not(None),
    )
    return session.scalar(query.limit(1)) is not None


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


def exploiters_beside(session: Session, trial: TrialRow) -> Sequence[str]:
    """The other trials of the experiment that have resumed from a donor's checkpoint and may resume from it again.

    Their donor may be any trial: one that has saved nothing itself passes on the checkpoint that it resumed from.
    """
    has_exploited = select(GenerationRow.number).where(GenerationRow.trial_id == TrialRow.id).exists()
    others = select(TrialRow.id).where(TrialRow.experiment_id == trial.experiment_id, TrialRow.id != trial.id)
    may_go_on = TrialRow.status.not_in([TrialStatus.COMPLETED, TrialStatus.PRUNED])
    return session.scalars(others.where(may_go_on, has_exploited)).all()


def resume_point(session: Session, trial_id: str) -> ResumePoint | None:
    """As `resume_points`, for one trial; None if it starts from the beginning."""
    return resume_points(session, [trial_id]).get(trial_id)
