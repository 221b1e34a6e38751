"""Column types whose values are the same on SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Annotated

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer
from sqlalchemy.types import TypeDecorator

# Not JSONB, which does not keep the order of parameters.
Json = JSON(none_as_null=True)


Int64 = Annotated[int, 64]
"""Steps and event numbers. PostgreSQL's `integer` ends at 2^31; a step that counts tokens exceeds it within a day."""


RowId = Annotated[int, "row id"]
"""Ids that the database assigns. Decisions of long trials use up 2^31 of them."""

SQLITES_INTEGER = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. SQLite's `integer` has them, too, and it numbers rows only by a column of that type."""


class UtcDateTime(TypeDecorator[datetime]):
    """A time in UTC: aware in Python, `timestamptz` on PostgreSQL, sortable text on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
