"""Service processes that remember who has reached what see what is stored, whoever stored it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.store import reached
from service.store.database import Database
from service.store.reached import Milestones, milestones_of, replace_milestones
from service.store.tables import ExperimentRow, MilestoneRow, TrialRow
from tests.conftest import examples

NUMBERS, MILESTONES, POOLS = range(4), (1, 3), (0, -1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

Stored = dict[int, dict[int, tuple[float, int]]]
"""By milestone and trial: the value and the pool."""


@dataclass(frozen=True)
class Add:
    number: int
    milestone: int
    value: float
    pool: int


@dataclass(frozen=True)
class Move:
    number: int
    pool: int


@dataclass(frozen=True)
class Replace:
    kept: int


STEPS = st.one_of(
    st.builds(Add, st.sampled_from(NUMBERS), st.sampled_from(MILESTONES), st.sampled_from([0.1, 0.5]), st.just(0)),
    st.builds(Move, st.sampled_from(NUMBERS), st.just(-1)),
    st.builds(Replace, st.sampled_from(NUMBERS)),
)
TRANSACTIONS = st.lists(st.tuples(st.booleans(), st.booleans(), st.lists(STEPS, max_size=4)), max_size=12)


BY_TURNS: list[tuple[bool, bool, list[Add | Move | Replace]]] = [
    (True, False, [Add(0, 1, 0.1, 0)]),
    (False, False, [Add(1, 1, 0.5, 0), Move(0, -1)]),
    (True, True, [Add(2, 1, 0.1, 0)]),
    (True, False, [Add(2, 1, 0.5, 0)]),
    (False, False, [Replace(1)]),
    (True, False, [Add(0, 1, 0.5, 0)]),
]


class Broken(Exception):
    pass


@pytest.fixture
def processes(database_url: str) -> Iterator[tuple[Database, Database]]:
    both = Database(database_url), Database(database_url)
    yield both
    for one in both:
        one.close()


@pytest.mark.parametrize("most", [0, 3, 100])
def test_all_see_the_same_milestones_whoever_changes_them(
    processes: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Each transaction is of one of two processes, and may fail at its end."""
    monkeypatch.setattr(reached, "MOST", most)

    @hypothesis_settings(examples(50), suppress_health_check=list(HealthCheck), deadline=None)
    @given(transactions=TRANSACTIONS)
    @example(transactions=BY_TURNS)
    def check(transactions: list[tuple[bool, bool, list[Add | Move | Replace]]]) -> None:
        id_ = _an_experiment(processes[0])
        stored: Stored = defaultdict(dict)
        for first, fails, steps in transactions:
            found: Stored = defaultdict(dict, {milestone: dict(there) for milestone, there in stored.items()})
            try:
                with processes[0 if first else 1].write() as session:
                    for step in steps:
                        _take(session, id_, step, found)
                        _same(session, id_, found)
                    _end(fails=fails)
                stored = found
            except Broken:
                pass
        with processes[0].write() as session:
            _same(session, id_, stored)
            rows = session.scalars(select(MilestoneRow).where(MilestoneRow.experiment_id == id_)).all()
        assert {(row.milestone, row.number): (row.value, row.pool) for row in rows} == {
            (milestone, number): place for milestone, there in stored.items() for number, place in there.items()
        }

    check()


def _end(*, fails: bool) -> None:
    if fails:
        raise Broken


def _an_experiment(database: Database) -> str:
    with database.write() as session:
        count = len(session.scalars(select(ExperimentRow.id)).all())
        id_ = f"x-{count}"
        facts = {"spec": {}, "tags": {}, "status": "running", "created_at": NOW}
        session.add(ExperimentRow(id=id_, name=id_, **facts))
        session.flush()
        for number in NUMBERS:
            trial = {"experiment_id": id_, "params": {}, "origin": "search", "status": "running", "created_at": NOW}
            session.add(TrialRow(id=f"{id_}-{number}", number=number, **trial))
    return id_


def _locked(session: Session, id_: str) -> ExperimentRow:
    return session.scalars(select(ExperimentRow).where(ExperimentRow.id == id_).with_for_update()).one()


def _take(session: Session, id_: str, step: Add | Move | Replace, stored: Stored) -> None:
    experiment = _locked(session, id_)
    match step:
        case Add(number, milestone, value, pool):
            is_new = milestones_of(session, id_).add(f"{id_}-{number}", number, milestone, value, pool)
            assert is_new == (number not in stored[milestone])
            stored[milestone].setdefault(number, (value, pool))
        case Move(number, pool):
            everywhere = select(MilestoneRow.milestone).where(MilestoneRow.experiment_id == id_)
            milestones_of(session, id_).move(f"{id_}-{number}", number, everywhere, pool)
            for there in stored.values():
                if number in there:
                    there[number] = there[number][0], pool
        case Replace(kept):
            experiment.spec_changed_at_event += 1
            rows = [
                (f"{id_}-{number}", number, milestone, *place)
                for milestone, there in stored.items()
                for number, place in there.items()
                if number == kept
            ]
            replace_milestones(session, experiment, rows)
            for there in stored.values():
                for number in set(there) - {kept}:
                    del there[number]


def _same(session: Session, id_: str, stored: Stored) -> None:
    _locked(session, id_)
    milestones: Milestones = milestones_of(session, id_)
    for milestone in MILESTONES:
        for pool in POOLS:
            wanted = sorted((value, number) for number, (value, its) in stored[milestone].items() if its == pool)
            assert milestones.at(milestone).peers(pool).ranking == wanted
            for but in NUMBERS:
                others = milestones.at(milestone).peers(pool, but=but).ranked("minimize", 0, len(NUMBERS))
                assert [(one.value, one.number) for one in others] == [one for one in wanted if one[1] != but]
