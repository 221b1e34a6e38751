"""Gives a new trial its bracket, if the early-stopping rule draws one."""

from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from service.runtime.caches.experiment_caches import spec_of
from service.runtime.search_view.observations import seed_of
from service.store.early_stopping.brackets import StoredCompleted
from service.store.tables import ExperimentRow


def drawn_bracket(session: Session, experiment: ExperimentRow, number: int) -> dict[str, Any] | None:
    """A `Bracket` as JSON, for what has completed by now; None if the rule gives none. The caller holds the lock."""
    spec = spec_of(experiment)
    if not spec.early_stopping.draws_brackets:
        return None
    completed = StoredCompleted(session, experiment.id)
    drawn = spec.early_stopping.draw_bracket(number, seed_of(spec, experiment.id), completed)
    return None if drawn is None else asdict(drawn)
