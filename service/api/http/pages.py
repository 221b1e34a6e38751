"""Pages of a list. A cursor is the sort key of the last item, so that a page can continue when that item is gone."""

import base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import AfterValidator, AwareDatetime, Field, FiniteFloat, TypeAdapter

from service.api.views.rows import View
from service.errors import BadRequest
from trainer.wire import Count, Text

Item = TypeVar("Item")
Key = TypeVar("Key")
Row = TypeVar("Row")

Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before, unchanged")]
Limit = Annotated[int, Query(ge=1, le=1000, description="the number of items on a page, at most")]

MAX_NUMBER = 2**31 - 1
_Number = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def _in_calendar(time: datetime) -> datetime:
    """Far from the ends of the calendar, where a change of the time zone overflows."""
    if time.utcoffset() or not _EARLIEST <= time <= _LATEST:
        raise ValueError("must be a time in UTC that an experiment can have been created at")
    return time


_Time = Annotated[AwareDatetime, AfterValidator(_in_calendar)]
_Id = Annotated[Text, Field(max_length=100)]

EXPERIMENT_KEY = TypeAdapter(tuple[_Time, _Id])
"""Time of creation and id."""
TRIAL_KEY = TypeAdapter(tuple[FiniteFloat | None, _Number])
"""First objective's value and number."""
NUMBER_KEY = TypeAdapter(tuple[Count])
"""A step, a sequence number, or the id of a row."""
REPORT_KEY = TypeAdapter(tuple[Count, Count])
"""An attempt's number and a report's sequence."""
NAME_KEY = TypeAdapter(tuple[Text])


class Page(View, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    """the items of this page"""
    next_cursor: str | None = None
    """the cursor of the next page; null on the last page"""


def next_cursor(rows: Sequence[Row], limit: int, cursor_of: Callable[[Row], str]) -> str | None:
    """The cursor of the page after the first `limit` of `rows`; None if there are no more rows than these."""
    return cursor_of(rows[limit - 1]) if len(rows) > limit else None


def to_cursor(kind: TypeAdapter[Key], key: Key) -> str:
    return base64.urlsafe_b64encode(kind.dump_json(key)).decode()


def from_cursor(kind: TypeAdapter[Key], cursor: str | None) -> Key | None:
    """Raises BadRequest for a cursor that no list with this kind of key has given."""
    if cursor is None:
        return None
    try:
        key = kind.validate_json(base64.urlsafe_b64decode(cursor))
        genuine = to_cursor(kind, key) == cursor
    except ValueError:
        genuine = False
    if not genuine:
        raise BadRequest("cursor must be the next_cursor of the page before, unchanged")
    return key
