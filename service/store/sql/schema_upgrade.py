"""Upgrades a database to the newest schema, and checks its version."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sqlalchemy import Connection, inspect, text

import migrations
from search.numbers_in_messages import counted
from service.store.sql.database import Database, lift_statement_timeout

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "alembic_version"
_COMPATIBILITY_TABLE = "schema_compatibility"
"""Each later version has it."""
_OWN_TABLE = "attempts"
"""Each version has it, and hardly another program that numbers its revisions in the same way."""
_FIRST_TABLES = {
    *("agents", "experiments", "packages", "tokens", "events", "mirrors", "trials", "attempts", "checkpoints"),
    *("decisions", "milestones", "mirror_runs", "reports"),
}
"""The first revision cannot create these beside others of the same names."""
NAMED_TABLES = 5
_SCRIPTS = Path(migrations.__file__).parent
_UPGRADE_LOCK = 7_205_759_403  # any number, the same for every service process


class SchemaState(Enum):
    """The schema of a database, as this version of the service sees it."""

    OLDER = auto()
    CURRENT = auto()
    NEWER = auto()
    """of a later version, and known to work with this one"""
    TOO_NEW = auto()
    FOREIGN = auto()
    """of another program"""


class SchemaTooNew(Exception):
    """A service of this version does not know the schema, and could damage what is stored."""


class ForeignSchema(Exception):
    """The database is another program's, whose tables an upgrade could damage."""

    @classmethod
    def of(cls, connection: Connection) -> Self:
        tables = sorted(inspect(connection).get_table_names())
        named = ", ".join(tables[:NAMED_TABLES]) + (", …" if len(tables) > NAMED_TABLES else "")
        return cls(
            f"the database belongs to another program: it has the tables {named}. Nothing was changed; name an empty "
            "one or one of Paceline's with PACELINE_DATABASE_URL or PACELINE_DATA_DIR"
        )


def upgrade(database: Database) -> None:
    """Upgrade an older schema. Raises SchemaTooNew for one that this version does not work with, and ForeignSchema.

    Several processes may call this concurrently: one upgrades and the others wait. Alembic is imported only if there is
    something to do: a service that was killed must be back soon.
    """
    with database.engine.connect() as connection:
        if not _is_older(connection):
            return
    from alembic import command  # noqa: PLC0415

    with _locked_schema(database) as connection:
        if not _is_older(connection):  # another process has upgraded it meanwhile
            return
        command.upgrade(config(connection), "head")
        broken = connection.execute(text("pragma foreign_key_check")).all() if database.is_sqlite else []
        if broken:
            raise RuntimeError(f"the new schema would leave rows whose parent row is missing: {broken[:10]}")


class WouldLoseData(Exception):
    """The earlier schema has no place for rows that are stored."""


LOST_BELOW: Sequence[tuple[str, str, str]] = (
    ("0004", "select count(*) from warm_starts", "what experiments learned from earlier ones"),
    (
        "0006",
        "select count(*) from trials where paused_milestone is not null",
        "pauses of trials, which would then have ended as pruned",
    ),
    ("0007", "select count(*) from generations", "generations: the params and donors of trials of populations"),
    ("0014", "select count(*) from uncounted_reports", "uncounted reports"),
    (
        "0016",
        "select count(*) from tokens where expires_at is not null",
        "expiry times of access tokens, which would then never expire",
    ),
    ("0017", "select count(*) from checkpoint_deletions", "directories that agents are to delete"),
    ("0020", "select count(*) from trials where cost is not null", "what trials cost"),
    (
        "0021",
        "select count(*) from checkpoints where pinned_at is not null and removed_at is null",
        "pins of checkpoints, which would then not be kept",
    ),
    ("0021", "select count(*) from checkpoints where removed_at is not null", "why checkpoints were removed"),
    (
        "0022",
        "select count(*) from trials where confirms is not null",
        "seeds of confirmations, which would then count as trials of the search",
    ),
    (
        "0025",
        "select count(*) from experiments where rule_choice is not null",
        "why the service chose a stopping rule, which would then not be chosen anew",
    ),
    (
        "0032",
        """
        select count(*) from checkpoints join trials on trials.id = checkpoints.trial_id
        where trials.best_step is not null and checkpoints.value is not null and checkpoints.removed_at is null
        and not exists (
          select 1 from reports where reports.trial_id = checkpoints.trial_id and reports.step = checkpoints.step
          and reports.attempt = checkpoints.attempt and reports.value = checkpoints.value
        )
        """,
        "values of checkpoints whose steps earlier attempts have reported, which would then never be the best ones",
    ),
)
"""What a downgrade below a revision loses: the revision, a query for the number of rows, and what they hold.

Columns that only explain are not among them, such as where params came from, and how busy a trial's nodes were.
"""


def downgrade(database: Database, revision: str, *, lose_data: bool = False) -> str:
    """Return the revision of the schema afterwards.

    Raises WouldLoseData, ForeignSchema, and ValueError for a wrong revision.
    """
    from alembic import command  # noqa: PLC0415

    with _locked_schema(database) as connection:
        present = _revision_above(connection, revision)
        lost = [(query, what) for below, query, what in LOST_BELOW if revision < below <= present]
        counts = [(connection.execute(text(query)).scalar_one(), what) for query, what in lost]
        words = ", ".join(f"{what} ({counted(count, 'row')})" for count, what in counts if count)
        if words and not lose_data:
            raise WouldLoseData(f"a downgrade to {revision} would lose {words}")
        command.downgrade(config(connection), revision)
    return revision


def _revision_above(connection: Connection, revision: str) -> str:
    """The revision from which a downgrade to this one begins. Raises ValueError if there is none, and ForeignSchema."""
    present = revision_of(connection)
    if _is_foreign(connection, present):
        raise ForeignSchema.of(connection)
    if present and present not in _revisions():
        raise ValueError(
            f"the database has the schema of a later version (revision {present}), and this one, with revision "
            f"{newest_revision()}, does not know it: run `paceline db downgrade` with the later version"
        )
    if present is None or revision not in _revisions() or revision > present:
        known = ", ".join(one for one in _revisions() if present and one <= present)
        raise ValueError(f"the revision must be one of {known or 'none: the database is empty'}; not {revision!r}")
    return present


@contextmanager
def _locked_schema(database: Database) -> Iterator[Connection]:
    """One transaction to change the schema in, which other processes that would change it wait for.

    PostgreSQL's timeouts are those of a service's calls, and a table may take longer to be changed.
    """
    with _unchecked_keys(database) as connection, connection.begin():
        if not database.is_sqlite:
            lift_statement_timeout(connection, silence_seconds=None)
            connection.execute(text("set local lock_timeout = 0"))
            connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        yield connection


@contextmanager
def _unchecked_keys(database: Database) -> Iterator[Connection]:
    """Connect, on SQLite with foreign keys off, and so that a transaction begins with the lock of the only writer.

    SQLite changes a constraint by copying the table and dropping the old one, which must not cascade to other tables.
    It ignores the setting inside of a transaction.
    """
    with database.engine.connect() as connection:
        connection.execution_options(paceline_begin="IMMEDIATE")
        raw = connection.connection.driver_connection
        if raw is None or not database.is_sqlite:
            yield connection
            return
        raw.execute("pragma foreign_keys = off")
        try:
            yield connection
        finally:
            connection.rollback()
            raw.execute("pragma foreign_keys = on")


def state_of(connection: Connection) -> SchemaState:
    present, own = revision_of(connection), newest_revision()
    if _is_foreign(connection, present):
        return SchemaState.FOREIGN
    if present == own:
        return SchemaState.CURRENT
    if present is None or present < own:
        return SchemaState.OLDER
    return SchemaState.NEWER if _oldest_revision(connection) <= own else SchemaState.TOO_NEW


def _is_foreign(connection: Connection, present: str | None) -> bool:
    """Whether another program uses the database.

    SQLite's file without a revision must be empty; a schema of PostgreSQL may have tables of other names.

    Litestream, which copies SQLite's file, has tables whose names begin with `_`. If the version table exists by now,
    another service has created the schema since `present` was read.
    """
    if present in _revisions():
        return not inspect(connection).has_table(_OWN_TABLE)
    if present is not None:
        return not inspect(connection).has_table(_COMPATIBILITY_TABLE)
    tables = set(inspect(connection).get_table_names())
    is_sqlite = connection.dialect.name == "sqlite"
    suspects = {name for name in tables if is_sqlite and not name.startswith("_")} | tables & _FIRST_TABLES
    return VERSION_TABLE not in tables and bool(suspects)


def _is_older(connection: Connection) -> bool:
    """Raises SchemaTooNew and ForeignSchema."""
    state = state_of(connection)
    if state is SchemaState.FOREIGN:
        raise ForeignSchema.of(connection)
    if state is SchemaState.TOO_NEW:
        own = newest_revision()
        raise SchemaTooNew(
            f"the database has the schema of a later version (revision {revision_of(connection)}), which works with "
            f"services from revision {_oldest_revision(connection)} on, and this one has {own}. Start the later "
            f"version; or stop all services and take the schema back with it: `paceline db downgrade {own}`"
        )
    return state is SchemaState.OLDER


def _oldest_revision(connection: Connection) -> str:
    """The oldest revision whose services work with the schema."""
    return str(connection.execute(text("select oldest_revision from schema_compatibility")).scalar_one())


def revision_of(connection: Connection) -> str | None:
    """The revision of the schema; None for an empty database."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision: str | None = connection.execute(text(f"select version_num from {VERSION_TABLE}")).scalar()  # noqa: S608
    return revision


def newest_revision() -> str:
    """The files of the revisions are numbered."""
    return _revisions()[-1]


@cache
def _revisions() -> Sequence[str]:
    """Cached, because `/readyz` is called frequently."""
    return sorted(file.name.partition("_")[0] for file in _SCRIPTS.glob("versions/[0-9]*_*.py"))


def config(connection: Connection) -> "Config":
    from alembic.config import Config  # noqa: PLC0415

    settings = Config()
    settings.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    settings.attributes["connection"] = connection
    return settings
