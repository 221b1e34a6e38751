"""A trial's generations: what it trained with, one set of params after the other, and from whose checkpoint."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from service.domain.statuses import TrialStatus
from service.store.tables import CheckpointRow, GenerationRow, TrialRow


@dataclass(frozen=True)
class Place:
    """Where a trial goes on: a checkpoint and the step it holds."""

    uri: str
    step: int


@dataclass(frozen=True)
class Exploit:
    """With that event a trial went on from another's checkpoint; the milestone is the last that it was judged at."""

    event: int
    milestone: int

    def gives_up(self, event: int, step: int) -> bool:
        """Whether it had reported that, and it was of weights that it has no more."""
        return event < self.event and step > self.milestone


def generations_of(session: Session, trial_id: str) -> Sequence[GenerationRow]:
    """In their order; none for a trial that has only ever had its own params."""
    return generations_of_all(session, [trial_id]).get(trial_id, [])


def generations_of_all(session: Session, trial_ids: Collection[str]) -> Mapping[str, Sequence[GenerationRow]]:
    """As `generations_of`, by trial."""
    query = select(GenerationRow).where(GenerationRow.trial_id.in_(trial_ids))
    found: defaultdict[str, list[GenerationRow]] = defaultdict(list)
    for row in session.scalars(query.order_by(GenerationRow.number)):
        found[row.trial_id].append(row)
    return found


def exploits_of(session: Session, experiment_id: str) -> Mapping[str, Sequence[Exploit]]:
    """By trial; none of a trial that has only ever had its own params."""
    query = select(GenerationRow.trial_id, GenerationRow.began_at_event, GenerationRow.milestone).join(
        TrialRow, TrialRow.id == GenerationRow.trial_id
    )
    found: defaultdict[str, list[Exploit]] = defaultdict(list)
    for trial_id, event, milestone in session.execute(query.where(TrialRow.experiment_id == experiment_id)):
        if milestone is not None:
            found[trial_id].append(Exploit(event, milestone))
    return found


def of_newest_generation() -> ColumnElement[bool]:
    """Checkpoints that a trial saved with the params that it has now."""
    first = select(func.max(GenerationRow.first_attempt)).where(GenerationRow.trial_id == CheckpointRow.trial_id)
    return CheckpointRow.attempt >= func.coalesce(first.correlate(CheckpointRow).scalar_subquery(), 0)


def places_of(session: Session, trial_ids: Collection[str]) -> dict[str, Place]:
    """Where each goes on: its newest checkpoint, or its donor's until it has saved one of its own."""
    newest = (
        select(GenerationRow.trial_id, func.max(GenerationRow.number).label("number"))
        .where(GenerationRow.trial_id.in_(trial_ids))
        .group_by(GenerationRow.trial_id)
        .subquery()
    )
    is_newest = (GenerationRow.trial_id == newest.c.trial_id) & (GenerationRow.number == newest.c.number)
    query = select(GenerationRow.trial_id, GenerationRow.resume_uri, GenerationRow.resume_step).join(newest, is_newest)
    places = {
        trial_id: Place(uri, step)
        for trial_id, uri, step in session.execute(query)
        if uri is not None and step is not None
    }
    saved = select(CheckpointRow).where(CheckpointRow.trial_id.in_(trial_ids), of_newest_generation())
    places |= {row.trial_id: Place(row.uri, row.step) for row in session.scalars(saved.order_by(CheckpointRow.step))}
    return places


def exploiters_beside(session: Session, trial: TrialRow) -> Sequence[str]:
    """The ids of the other trials that have gone on from what another one had saved, and may go on from there again.

    That may be this one's whoever was their donor: one that has saved nothing itself passes on what it went on from.
    """
    has_exploited = select(GenerationRow.number).where(GenerationRow.trial_id == TrialRow.id).exists()
    others = select(TrialRow.id).where(TrialRow.experiment_id == trial.experiment_id, TrialRow.id != trial.id)
    may_go_on = TrialRow.status.not_in([TrialStatus.COMPLETED, TrialStatus.PRUNED])
    return session.scalars(others.where(may_go_on, has_exploited)).all()


def place_of(session: Session, trial_id: str) -> Place | None:
    """As `places_of`; None for a trial that begins at its beginning."""
    return places_of(session, [trial_id]).get(trial_id)
