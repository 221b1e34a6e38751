"""What early stopping reads of an experiment, from SQL. Trials get their brackets when they are created."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import ColumnElement, Row, Subquery, func, select
from sqlalchemy.orm import Session

from search.early_stopping import AT_END, COMPLETED, Peers
from search.early_stopping.rule import MAX_COUNT
from search.problem import Direction, best_value_of
from search.reported_numbers import finite_number
from service.store.early_stopping.milestones import milestones_of
from service.store.early_stopping.reported_values import reported_values
from service.store.tables import TrialRow


@dataclass(frozen=True)
class StoredHistory:
    """`search.early_stopping.History` of a trial. The caller holds the experiment's lock.

    `metric` is the one that is judged; None means the first objective, which has a column of its own in reports.
    `previous_step`: the trial has reached no milestone beyond it so far.
    """

    session: Session
    trial: TrialRow
    metric: str | None = None
    previous_step: int | None = None

    def reach(self, milestone: int, value: float, pool: int) -> bool:
        trial, is_new = self.trial, self.previous_step is None or self.previous_step < milestone
        milestones = milestones_of(self.session, trial.experiment_id)
        return milestones.add(trial.id, trial.number, milestone, value, pool, is_new=is_new)

    def peers(self, milestone: int, pool: int) -> Peers:
        return milestones_of(self.session, self.trial.experiment_id).at(milestone).peers(pool, but=self.trial.number)

    def curve(self, number: int | None = None) -> Mapping[int, float]:
        points = self._points(self.trial.id if number is None else self._id_of(number))
        return dict(_finite(self.session.execute(select(points))))

    def best_value(self, direction: Direction) -> float:
        best = self._best(self._points(self.trial.id), direction)
        return math.nan if best is None else best

    def best_since_and_before(self, count: int, direction: Direction) -> tuple[float, float] | None:
        needed = min(count, MAX_COUNT)
        last = list(islice(self._newest_first(needed), needed))
        if len(last) < count:
            return None
        points = self._points(self.trial.id)
        before = self._best(points, direction, points.c.step < last[-1][0])
        return None if before is None else (best_value_of((value for _, value in last), direction), before)

    def complete(self, value: float, *, is_compared: bool) -> None:
        """Record the end of the trial, which ran to it, with its value there.

        `is_compared`: the trial moves to the pool of completed trials, with which others are compared. A trial without
        a value at its end is not recorded: `reopen` finds by that value what it has to undo.
        """
        trial = self.trial
        milestones = milestones_of(self.session, trial.experiment_id)
        if is_compared:
            milestones.move(trial.id, trial.number, COMPLETED)
        milestones.put_end(trial.id, trial.number, value)

    def reopen(self, pool: int) -> None:
        """Undo `complete` when the trial is retried. `pool` is the one in which it is compared while it runs."""
        trial = self.trial
        milestones = milestones_of(self.session, trial.experiment_id)
        if milestones.withdraw_end(trial.id, trial.number):
            milestones.move(trial.id, trial.number, pool, only_from=COMPLETED)

    def last_value(self) -> float | None:
        """The trial's value; of another metric than the first objective, its newest finite number."""
        if self.metric is None:
            return self.trial.value
        return next((value for _, value in self._newest_first(1)), None)

    def _newest_first(self, count: int) -> Iterator[tuple[int, float]]:
        """The curve from its highest step down. So many reports are read, and more if some have no finite number."""
        points = self._points(self.trial.id)
        query = select(points).order_by(points.c.step.desc())
        rows = self.session.execute(query.limit(count)).all()
        yield from _finite(rows)
        while len(rows) == count:
            count *= 2
            rows = self.session.execute(query.where(points.c.step < rows[-1].step).limit(count)).all()
            yield from _finite(rows)

    def _best(self, points: Subquery, direction: Direction, *of: ColumnElement[bool]) -> float | None:
        best = func.max if direction == "maximize" else func.min
        query = select(best(points.c.number), func.count(points.c.text)).where(*of)
        number, text_count = self.session.execute(query).one()
        texts = self.session.scalars(select(points.c.text).where(*of).distinct()) if text_count else ()
        values = [value for value in map(finite_number, (number, *texts)) if value is not None]
        return best_value_of(values, direction) if values else None

    def _points(self, trial_id: str) -> Subquery:
        return reported_values(trial_id, self.metric, self.session.get_bind().dialect.name)

    def _id_of(self, number: int) -> str:
        of_experiment = TrialRow.experiment_id == self.trial.experiment_id
        found = self.session.scalar(select(TrialRow.id).where(of_experiment, TrialRow.number == number))
        if found is None:
            raise LookupError(f"the experiment has no trial {number}")
        return found


def _finite(points: Iterable[Row[int, float | None, str | None]]) -> Iterator[tuple[int, float]]:
    for step, number, text in points:
        value = finite_number(number if text is None else text)
        if value is not None:
            yield step, value


@dataclass(frozen=True)
class StoredCompleted:
    """`search.early_stopping.bracket.CompletedTrials` of an experiment. The caller holds its lock."""

    session: Session
    experiment_id: str

    def newest(self, count: int) -> Sequence[int]:
        return milestones_of(self.session, self.experiment_id).at(AT_END).newest(count, COMPLETED)

    def value_at(self, number: int, milestone: int) -> float | None:
        return milestones_of(self.session, self.experiment_id).at(milestone).value_of(number)


def stored_bracket_of(trial: TrialRow) -> int | None:
    """None if none is stored: the bracket then follows from the trial's number (`Hyperband.bracket_of`)."""
    return None if trial.bracket is None else int(trial.bracket["number"])


def stored_brackets(trials: Iterable[TrialRow]) -> dict[int, int]:
    """The brackets of the trials that have one, by trial number."""
    return {trial.number: bracket for trial in trials if (bracket := stored_bracket_of(trial)) is not None}
