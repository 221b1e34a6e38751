"""What every operation works with."""

from dataclasses import dataclass, field

from service.clock import Clock, utc_now
from service.operations.bell import Bell
from service.operations.proposals import Proposals
from service.settings import Settings
from service.store.database import Database


@dataclass(frozen=True)
class Context:
    """`changed` rings after each commit that long polls and event streams may wait for."""

    settings: Settings
    database: Database
    clock: Clock = utc_now
    proposals: Proposals = field(default_factory=Proposals)
    changed: Bell = field(default_factory=Bell)
