"""A short run with faults, as `make chaos` does for minutes."""

import pytest

from tests.chaos.audit import audit
from tests.chaos.chaos import Kind, Plan, chaos
from tests.chaos.faults.schedule import Target
from tests.chaos.report import report
from tests.chaos.system.stack import Size

LOAD = (Kind.PACE, Kind.DRIFT, Kind.ODD)
LEFT_OUT = {
    *(Target.RAY, Target.CLIENT, Target.STORAGE, Target.ARTIFACTS, Target.CLOCK),
    *(Target.NETWORK, Target.DISK, Target.UP),
}
TARGETS = [target for target in Target if target not in LEFT_OUT]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_every_component_is_killed_and_each_trial_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_PICTURE_SECONDS", "0")  # no fault of this run concerns them, and they take long
    size = Size(database="postgresql", services=2, agents=1, lease_seconds=30)
    plan = Plan(2974, 23, size, TARGETS, gap=(2.5, 4), trials=3, parallelism=1, timeout=600, load=LOAD)
    snapshot = chaos(plan, print)
    violations = audit(snapshot)
    assert not violations, report(snapshot, violations)
    assert {fault.planned.target for fault in snapshot.record.faults} == set(TARGETS)
