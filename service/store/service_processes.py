"""The service processes that share the database. On SQLite there is one, and it is not stored."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.store.tables import ServiceRow

FORGOTTEN = timedelta(minutes=10)
"""A service that is away for so long does not come back."""


def register(session: Session, name: str, url: str | None, reachable_since: datetime, now: datetime) -> None:
    """Store, once a second, that the service is there. Forgets those that have been away for long."""
    session.execute(delete(ServiceRow).where(ServiceRow.seen_at < now - FORGOTTEN, ServiceRow.name != name))
    row = session.get(ServiceRow, name)
    if row is None:
        row = ServiceRow(name=name)
        session.add(row)
    row.url, row.seen_at, row.reachable_since = url, now, reachable_since


def advertised_urls(session: Session) -> Sequence[str]:
    query = select(ServiceRow.url).where(ServiceRow.url.is_not(None)).order_by(ServiceRow.url).distinct()
    return [url for url in session.scalars(query) if url is not None]


def is_another_there(session: Session, name: str, since: datetime, now: datetime) -> bool:
    """Whether another service than that with the `name` was last there between `since` and `now`."""
    others = select(ServiceRow.name).where(ServiceRow.name != name, ServiceRow.seen_at.between(since, now))
    return session.scalar(others.limit(1)) is not None


def last_seen(session: Session, name: str | None, now: datetime) -> datetime | None:
    """When the service was last there, if it is or may come back; None also for None and for an unknown service."""
    row = None if name is None else session.get(ServiceRow, name)
    return None if row is None or now - row.seen_at > FORGOTTEN else row.seen_at


def reachable_since(session: Session, name: str | None) -> datetime | None:
    """Since when the service has been there without a gap; None if that is not known."""
    row = None if name is None else session.get(ServiceRow, name)
    return None if row is None else row.reachable_since
