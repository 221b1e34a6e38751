"""The statements that a block sends to the database."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def recorded(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    queries: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if not many and re.match("(select|update|delete)", statement, re.IGNORECASE):
            queries.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    yield queries
    event.remove(engine, "before_cursor_execute", record)
