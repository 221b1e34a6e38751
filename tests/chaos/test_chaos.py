"""A short run under fire, as `make chaos` does for minutes."""

import pytest

from tests.chaos.audit import audit
from tests.chaos.chaos import Plan, chaos
from tests.chaos.report import report
from tests.chaos.schedule import Victim
from tests.chaos.stack import Size

VICTIMS = [victim for victim in Victim if victim is not Victim.RAY]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_every_part_is_killed_and_each_trial_counts_once() -> None:
    size = Size(database="postgresql", services=2, agents=1, lease_seconds=30)
    snapshot = chaos(Plan(384, 23, size, VICTIMS, gap=(2.5, 4), trials=3, parallelism=1, patience=600), print)
    violations = audit(snapshot)
    assert not violations, report(snapshot, violations)
    assert {struck.kill.victim for struck in snapshot.record.struck} == set(VICTIMS)
