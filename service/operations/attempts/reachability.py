"""Whether holders could reach the service: no attempt is to end for a silence that the service has caused."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import false, update
from sqlalchemy.orm import Session

from service.operations.attempts.leases import LeasedAttempt
from service.runtime.context import Context
from service.store.attempts import lock_by_digests
from service.store.service_processes import advertised_urls, last_seen, reachable_since, register
from service.store.sql.database import database_now
from service.store.tables import AttemptRow


@dataclass(frozen=True)
class Reachability:
    """Whether holders could reach the service: `since` when without a gap (None: always), and whether they `still` can.

    `still` is called with the database's present time once the experiment's lock is held, because a delay that kept
    the service from the lock may have kept holders from the service. What it is asked about is read before.
    """

    since: datetime | None = None
    still: Callable[[datetime], bool] = lambda _: True


ALWAYS = Reachability()


def call_as_a_holder(session: Session) -> None:
    """Do what a heartbeat does, for no attempt. So it waits for what keeps holders waiting.

    That may be the upgrade of a table that their calls need, or another process that writes to an SQLite database.
    """
    lock_by_digests(session, [])
    session.execute(update(AttemptRow).where(false()).values(lease_expires_at=None))


def last_call_possible(context: Context, leased: LeasedAttempt) -> datetime:
    """The last time at which the service was there that the holder knows, if that may be another one than this."""
    name = leased.attempt.service
    seen_at = None if name == context.service_name else last_seen(leased.session, name, leased.now)
    return seen_at or leased.now


def holder_reachable_since(session: Session, leased: LeasedAttempt, reachability: Reachability) -> datetime | None:
    """Since when the holder could reach this service, or the only one that it knows."""
    known = [reachability.since, reachable_since(session, leased.attempt.service)]
    return max(filter(None, known), default=None)


def announce_service(context: Context, since: datetime | None) -> None:
    """Store that this service is there, and `since` when; read the addresses of the others."""
    with context.database.write() as session:
        now, settings = database_now(session), context.settings
        register(session, settings.service_name, settings.advertised_url, since or now, now)
        session.flush()
        context.service_urls[:] = advertised_urls(session)
