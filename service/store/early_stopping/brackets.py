"""The brackets of trials, which are given to them when they are created."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from search.early_stopping import AT_END
from service.store.early_stopping.milestones import milestones_of
from service.store.tables import TrialRow


@dataclass(frozen=True)
class StoredCompleted:
    """`search.early_stopping.bracket.CompletedTrials` of an experiment. The caller holds its lock."""

    session: Session
    experiment_id: str

    def newest(self, count: int) -> Sequence[int]:
        return milestones_of(self.session, self.experiment_id).at(AT_END).newest(count)

    def value_at(self, number: int, milestone: int) -> float | None:
        return milestones_of(self.session, self.experiment_id).at(milestone).value_of(number)


def stored_bracket_of(trial: TrialRow) -> int | None:
    """None if none is stored: the bracket then follows from the trial's number (`Hyperband.bracket_of`)."""
    return None if trial.bracket is None else int(trial.bracket["number"])


def stored_brackets(trials: Iterable[TrialRow]) -> dict[int, int]:
    """By number, of the trials that have one."""
    return {trial.number: bracket for trial in trials if (bracket := stored_bracket_of(trial)) is not None}
