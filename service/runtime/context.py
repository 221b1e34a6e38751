"""What every operation works with."""

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from service.clock import Clock, utc_now
from service.runtime.computation.compute_pool import ComputePool
from service.runtime.computation.threads import Threads
from service.runtime.events.notifier import KeyedNotifier, Notifier
from service.runtime.events.open_stream_limit import OpenStreams, download_streams, follower_streams
from service.runtime.lease_tokens import LeaseTokens
from service.runtime.slot_handover import SlotHandover
from service.runtime.token_use import TokenUse
from service.settings import Settings
from service.store.sql.database import Database

if TYPE_CHECKING:
    from service.runtime.caches.importance_cache import ImportanceCache
    from service.runtime.proposals import Proposals


@dataclass(frozen=True)
class Context:
    """The parts that all operations of a service process share.

    `new_events` is notified after each commit that event streams wait for, `capacity_freed` after each commit that may
    let a trial start. `holder_changes` is keyed by trial: it is notified when what the holder is answered may change.
    `revoked_tokens` is keyed by the digest of an access token: it is notified when the token stops being valid.
    `service_urls` are the addresses of all services on the database that have one. `locked_experiments` are those
    whose expired leases could not be looked at in the last pass. `passed_over` are experiments
    that claims could not serve, with the kind of error that has been logged.
    """

    settings: Settings
    database: Database
    clock: Clock = utc_now
    new_events: Notifier = field(default_factory=Notifier)
    capacity_freed: Notifier = field(default_factory=Notifier)
    holder_changes: KeyedNotifier = field(default_factory=KeyedNotifier)
    revoked_tokens: KeyedNotifier = field(default_factory=KeyedNotifier)
    token_use: TokenUse = field(default_factory=TokenUse)
    slot_handover: SlotHandover = field(default_factory=SlotHandover)
    threads: Threads = field(default_factory=Threads)
    compute: ComputePool = field(default_factory=ComputePool)
    followers: OpenStreams = field(default_factory=follower_streams)
    downloads: OpenStreams = field(default_factory=download_streams)
    stopping: threading.Event = field(default_factory=threading.Event)
    service_urls: list[str] = field(default_factory=list)
    locked_experiments: set[str] = field(default_factory=set)
    passed_over: dict[str, type[BaseException]] = field(default_factory=dict)

    @property
    def service_name(self) -> str | None:
        """What other services on the database know this one by; None if there can be no other."""
        return None if self.database.is_sqlite else self.settings.service_name

    @cached_property
    def proposals(self) -> "Proposals":
        """Imported at first use, because Optuna takes long, and reports need none."""
        from service.runtime.proposals import Proposals  # noqa: PLC0415

        return Proposals(self.database)

    @cached_property
    def importance(self) -> "ImportanceCache":
        """As `proposals`."""
        from service.runtime.caches.importance_cache import ImportanceCache  # noqa: PLC0415

        return ImportanceCache(self.database)

    @cached_property
    def lease_tokens(self) -> LeaseTokens:
        return LeaseTokens(self.settings.lease_key())

    def notify_changed(self) -> None:
        """Call this after a commit that may start or end a trial."""
        self.new_events.notify()
        self.capacity_freed.notify()

    def notify_all(self) -> None:
        """Call this after a commit that may also change what holders of leases are answered."""
        self.holder_changes.notify()
        self.notify_changed()

    def stop(self) -> None:
        """Begin the shutdown: long polls and streams are answered now."""
        self.stopping.set()
        self.notify_all()

    def close(self) -> None:
        """Call this when no more calls arrive."""
        self.compute.close()
        self.proposals.close()
        self.database.close()
