"""From when to when each fault lasted."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.evidence.snapshot import Attempt
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.run import Record


@dataclass(frozen=True)
class FaultPeriod:
    fault: Fault
    since: float
    until: float

    def overlaps(self, attempt: Attempt) -> bool:
        return self.since <= (attempt.ended_at or self.since) and attempt.started_at <= self.until


def fault_periods(record: Record) -> Iterator[FaultPeriod]:
    """Each fault until its target was started again or went on; without end, if that never happened."""
    for number, fault in enumerate(record.faults):
        yield FaultPeriod(fault, fault.at, record.restarted.get(number, float("inf")))
