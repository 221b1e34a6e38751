"""What every operation works with."""

import threading
from dataclasses import dataclass, field

from service.clock import Clock, utc_now
from service.runtime.importance_cache import Analysis
from service.runtime.notifier import Bell, Bells
from service.runtime.proposal_cache import Proposals
from service.runtime.slot_handover import Handover
from service.settings import Settings
from service.store.sql.database import Database


@dataclass(frozen=True)
class Context:
    """`changed` rings after each commit that event streams wait for, `freed` after those that may let a trial start.

    `told` rings by trial, when there may be news for whoever runs it.
    """

    settings: Settings
    database: Database
    clock: Clock = utc_now
    proposals: Proposals = field(default_factory=Proposals)
    analysis: Analysis = field(default_factory=Analysis)
    changed: Bell = field(default_factory=Bell)
    freed: Bell = field(default_factory=Bell)
    told: Bells = field(default_factory=Bells)
    handover: Handover = field(default_factory=Handover)
    stopping: threading.Event = field(default_factory=threading.Event)

    def ring(self) -> None:
        """After a commit that may let a trial start, or end."""
        self.changed.ring()
        self.freed.ring()

    def ring_all(self) -> None:
        """After a commit that may also have news for those who run trials."""
        self.told.ring()
        self.ring()

    def stop(self) -> None:
        """The service ends: whoever waits is answered now."""
        self.stopping.set()
        self.ring_all()

    def close(self) -> None:
        """When nobody calls any more."""
        self.proposals.close()
        self.database.close()
