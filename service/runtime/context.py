"""What every operation works with."""

import threading
from dataclasses import dataclass, field

from service.clock import Clock, utc_now
from service.runtime.importance_cache import ImportanceCache
from service.runtime.notifier import KeyedNotifier, Notifier
from service.runtime.proposal_cache import ProposalCache
from service.runtime.slot_handover import SlotHandover
from service.settings import Settings
from service.store.sql.database import Database


@dataclass(frozen=True)
class Context:
    """The parts that all operations of a service process share.

    `new_events` is notified after each commit that event streams wait for, `capacity_freed` after each commit that may
    let a trial start. `holder_news` is keyed by trial: it is notified when the answer to the trial's holder may change.
    """

    settings: Settings
    database: Database
    clock: Clock = utc_now
    proposals: ProposalCache = field(default_factory=ProposalCache)
    importance: ImportanceCache = field(default_factory=ImportanceCache)
    new_events: Notifier = field(default_factory=Notifier)
    capacity_freed: Notifier = field(default_factory=Notifier)
    holder_news: KeyedNotifier = field(default_factory=KeyedNotifier)
    slot_handover: SlotHandover = field(default_factory=SlotHandover)
    stopping: threading.Event = field(default_factory=threading.Event)

    def notify_changed(self) -> None:
        """Call this after a commit that may start or end a trial."""
        self.new_events.notify()
        self.capacity_freed.notify()

    def notify_all(self) -> None:
        """Call this after a commit that may also change what holders of leases are answered."""
        self.holder_news.notify()
        self.notify_changed()

    def stop(self) -> None:
        """Begin the shutdown: long polls and streams are answered now."""
        self.stopping.set()
        self.notify_all()

    def close(self) -> None:
        """Call this when no more calls arrive."""
        self.proposals.close()
        self.database.close()
