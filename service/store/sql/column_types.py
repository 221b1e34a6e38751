"""Column types that read the same from SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Annotated

from sqlalchemy import JSON, DateTime, Dialect
from sqlalchemy.types import TypeDecorator

# Not JSONB: it forgets the order in which people wrote their parameters.
Json = JSON(none_as_null=True)


Int64 = Annotated[int, 64]
"""Steps and numbers of events: PostgreSQL's plain integer ends at 2^31, which tokens seen pass within a day."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC: aware in Python, `timestamptz` on PostgreSQL, sortable text on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
