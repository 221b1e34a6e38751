"""Counts the recorded events that are read to rebuild milestones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from service.store.events import EventOfKind, events_of_kinds
from service.store.sql.bulk_writes import WriteSession


@dataclass
class Reads:
    """How many events were read under the experiment's lock, and without it."""

    locked: int = 0
    unlocked: int = 0


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()

    def count(open_session: Any, *arguments: Any, **options: Any) -> Iterator[EventOfKind]:
        with open_session() as session:
            kind = "locked" if isinstance(session, WriteSession) else "unlocked"
        for event in events_of_kinds(open_session, *arguments, **options):
            setattr(counted, kind, getattr(counted, kind) + 1)
            yield event

    monkeypatch.setattr("service.operations.early_stopping.recorded_milestones.events_of_kinds", count)
    return counted
