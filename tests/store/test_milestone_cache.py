"""Service processes that cache milestones see what is stored, also by other processes."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import delete, event, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from service.store.early_stopping import milestone_cache
from service.store.early_stopping.milestone_cache import BASE_WEIGHT, MilestoneCache
from service.store.early_stopping.milestones import milestones_of, replace_milestones
from service.store.sql.bulk_writes import WriteSession
from service.store.sql.database import Database
from service.store.sql.process_caches import process_caches
from service.store.tables import ExperimentRow, MilestoneRow, TrialRow
from tests.conftest import examples

NUMBERS, MILESTONES, POOLS = range(4), (1, 3), (0, -1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

Stored = dict[int, dict[int, tuple[float, int]]]
"""By milestone and trial: the value and the pool."""


@dataclass(frozen=True)
class Look:
    milestone: int


@dataclass(frozen=True)
class Add:
    """`tells`: a trial that is new at the milestone is added with `is_new`."""

    number: int
    milestone: int
    value: float
    pool: int
    tells: bool = False


@dataclass(frozen=True)
class Move:
    number: int
    pool: int


@dataclass(frozen=True)
class Replace:
    kept: int


STEPS = st.one_of(
    st.builds(Look, st.sampled_from(MILESTONES)),
    st.builds(
        Add,
        st.sampled_from(NUMBERS),
        st.sampled_from(MILESTONES),
        st.sampled_from([0.1, 0.5]),
        st.just(0),
        st.booleans(),
    ),
    st.builds(Move, st.sampled_from(NUMBERS), st.just(-1)),
    st.builds(Replace, st.sampled_from(NUMBERS)),
)
TRANSACTIONS = st.lists(st.tuples(st.booleans(), st.booleans(), st.lists(STEPS, max_size=4)), max_size=12)


Step = Look | Add | Move | Replace
BY_TURNS: list[tuple[bool, bool, list[Step]]] = [
    (True, False, [Add(0, 1, 0.1, 0), Add(0, 3, 0.1, 0, tells=True)]),
    (False, False, [Add(1, 1, 0.5, 0), Move(0, -1), Add(1, 3, 0.5, 0, tells=True), Look(3)]),
    (True, True, [Look(1), Add(2, 1, 0.1, 0, tells=True), Look(3)]),
    (True, False, [Add(2, 1, 0.5, 0)]),
    (False, False, [Replace(1)]),
    (True, False, [Add(0, 1, 0.5, 0)]),
]


END_THE_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""


class Broken(Exception):
    pass


@pytest.fixture
def processes(database_url: str) -> Iterator[tuple[Database, Database]]:
    both = Database(database_url), Database(database_url)
    yield both
    for one in both:
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 15, 1000])
def test_all_processes_see_the_same_milestones(
    processes: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Each transaction is of one of two processes, and may fail at its end."""
    monkeypatch.setattr(milestone_cache, "MAX_WEIGHT", most)

    @hypothesis_settings(examples(50), suppress_health_check=list(HealthCheck), deadline=None)
    @given(transactions=TRANSACTIONS)
    @example(transactions=BY_TURNS)
    def check(transactions: list[tuple[bool, bool, list[Step]]]) -> None:
        id_ = _an_experiment(processes[0])
        stored: Stored = defaultdict(dict)
        for first, fails, steps in transactions:
            found: Stored = defaultdict(dict, {milestone: dict(there) for milestone, there in stored.items()})
            try:
                with processes[0 if first else 1].write() as session, session.no_autoflush:
                    for step in steps:
                        _take(session, id_, step, found)
                    _end(fails=fails)
                stored = found
            except Broken:
                pass
        for process in processes:
            with process.write() as session:
                for milestone in MILESTONES:
                    _take(session, id_, Look(milestone), stored)
            assert _weight(session) <= most
        with processes[0].read() as reading:
            rows = reading.scalars(select(MilestoneRow).where(MilestoneRow.experiment_id == id_)).all()
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


def _take(session: Session, id_: str, step: Step, stored: Stored) -> None:
    experiment = _locked(session, id_)
    match step:
        case Look(milestone):
            _same(session, id_, milestone, stored[milestone])
        case Add(number, milestone, value, pool, tells):
            is_new = number not in stored[milestone]
            facts = f"{id_}-{number}", number, milestone, value, pool
            assert milestones_of(session, id_).add(*facts, is_new=tells and is_new) == is_new
            stored[milestone].setdefault(number, (value, pool))
        case Move(number, pool):
            milestones_of(session, id_).move(f"{id_}-{number}", number, pool)
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


def _same(session: Session, id_: str, milestone: int, there: dict[int, tuple[float, int]]) -> None:
    found = milestones_of(session, id_).at(milestone)
    for pool in POOLS:
        wanted = sorted((value, number) for number, (value, its) in there.items() if its == pool)
        assert found.peers(pool).ranking == wanted
        for but in NUMBERS:
            others = found.peers(pool, but=but).ranked("minimize", 0, len(NUMBERS))
            assert [(one.value, one.number) for one in others] == [one for one in wanted if one[1] != but]


def _weight(session: WriteSession) -> int:
    """The weight of the process's cache, recomputed."""
    cached = process_caches(session).of(MilestoneCache)._experiments
    weight = sum(BASE_WEIGHT + sum(one.weight for one in each.milestones.values()) for each in cached.values())
    assert weight == cached.currsize
    return weight


@contextmanager
def _counting_reads(database: Database) -> Iterator[list[str]]:
    """The queries that read the trials at a milestone."""
    reads: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT milestones.number, milestones.value"):
            reads.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    yield reads
    event.remove(database.engine, "before_cursor_execute", note)


def _add(database: Database, id_: str, number: int, milestone: int) -> None:
    with database.write() as session:
        _locked(session, id_)
        assert milestones_of(session, id_).add(f"{id_}-{number}", number, milestone, 0.5, 0, is_new=True)


def _numbers(database: Database, id_: str, milestone: int) -> list[int]:
    with database.write() as session:
        _locked(session, id_)
        return [number for _, number in milestones_of(session, id_).at(milestone).peers(0).ranking]


def test_a_milestone_is_read_only_when_it_is_needed(processes: tuple[Database, Database]) -> None:
    id_ = _an_experiment(processes[0])
    with _counting_reads(processes[0]) as reads:
        for number in NUMBERS:
            for milestone in range(5):
                _add(processes[0], id_, number, milestone)
        assert len(reads) == 0
        assert _numbers(processes[0], id_, 3) == list(NUMBERS)
        assert _numbers(processes[0], id_, 3) == list(NUMBERS)
        assert len(reads) == 1


def test_a_loop_over_more_milestones_than_are_cached_finds_the_first_ones(
    processes: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, id_ = _an_experiment(processes[0]), _an_experiment(processes[0])
    monkeypatch.setattr(milestone_cache, "MAX_WEIGHT", BASE_WEIGHT + 3 * (BASE_WEIGHT + 1))
    for milestone in range(5):
        _add(processes[0], id_, 0, milestone)
        _add(processes[0], ended, 0, milestone)
        assert _numbers(processes[0], ended, milestone) == [0]
    for again in range(3):
        with _counting_reads(processes[0]) as reads:
            for milestone in range(5):
                assert _numbers(processes[0], id_, milestone) == [0]
        assert len(reads) == (2 if again else 5)


def _come_back_without(database: Database, id_: str, number: int) -> None:
    """A standby takes over that lacks the last change."""
    with database.engine.begin() as connection:
        connection.execute(delete(MilestoneRow).where(MilestoneRow.trial_id == f"{id_}-{number}"))
        lower = update(ExperimentRow).where(ExperimentRow.id == id_)
        connection.execute(lower.values(milestone_count=ExperimentRow.milestone_count - 1))


def test_what_a_standby_has_lost_is_not_cached(processes: tuple[Database, Database]) -> None:
    id_ = _an_experiment(processes[0])
    _add(processes[0], id_, 0, 1)
    assert _numbers(processes[0], id_, 1) == [0]
    _add(processes[0], id_, 1, 1)
    _come_back_without(processes[1], id_, 1)
    assert _numbers(processes[0], id_, 1) == [0]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.slow
def test_the_cache_is_cleared_when_a_connection_breaks(processes: tuple[Database, Database]) -> None:
    """The standby may have stored as many new changes as it has lost."""
    first, second = processes
    id_ = _an_experiment(first)
    _add(first, id_, 0, 1)
    assert _numbers(first, id_, 1) == [0]
    _add(first, id_, 1, 1)
    _come_back_without(second, id_, 1)
    _add(second, id_, 2, 1)
    with second.engine.begin() as connection:
        connection.execute(text(END_THE_OTHERS))
    assert _numbers(first, id_, 1) == [0, 2]


def test_a_milestone_without_a_change_number_is_refused(
    processes: tuple[Database, Database],
) -> None:
    id_ = _an_experiment(processes[0])
    row = {"experiment_id": id_, "milestone": 1, "trial_id": f"{id_}-0", "number": 0, "pool": 0, "value": 0.5}
    with pytest.raises(IntegrityError), processes[0].engine.begin() as connection:
        connection.execute(insert(MilestoneRow), row)


def test_milestones_that_two_threads_put_back_count_once() -> None:
    """The second transaction takes the milestones after the first one's commit, before they are put back."""
    cache = MilestoneCache()
    first, second = cache.take("x-1", 0, 0), cache.take("x-1", 0, 0)
    for one in (first, second):
        cache.put_back("x-1", one)
    assert cache._experiments.currsize == second.weight
