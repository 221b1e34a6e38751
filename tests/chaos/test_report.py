"""The report at the end of a run."""

from dataclasses import replace

import pytest

from tests.chaos.evidence.calls import Call
from tests.chaos.evidence.monitor import Sample
from tests.chaos.evidence.snapshot import Snapshot
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import CUT, PlannedFault, Target
from tests.chaos.good_run import good_run
from tests.chaos.recovery_times import recoveries
from tests.chaos.report import report


def test_a_good_run_is_summed_up_with_what_was_done_twice() -> None:
    words = report(good_run(), [])
    assert "1 experiments, 2 trials: 1 completed, 1 pruned" in words
    assert "steps made more than once             2  each counted once" in words
    assert words.endswith("Nothing was lost, and nothing was counted twice.")


def test_the_report_says_what_was_covered_and_what_was_not() -> None:
    words = report(good_run(), [])
    assert "experiments       1 pace" in words
    assert "decisions         2 continue, 1 stop" in words
    never = "agent, artifacts, client, clock, database, disk, mlflow, network, ray, service, slot, storage, up"
    assert f"faults in {never}: there was none" in words
    assert "decisions to pause, promote, exploit: there was none" in words
    assert "calls of a user: there was none" in words


def test_an_undecided_call_is_not_checked() -> None:
    unanswered = Call("resume", "x-1", 1001, 1002, None, lost_count=1)
    pause = Call("pause", "x-1", 1003, 1004, 200)
    words = report(replace(good_run(), calls=[unanswered, pause]), [])
    assert "1 pauses and resumes: an earlier call without an answer may have undone them" in words
    assert "1 calls that a user gave up without an answer" in words


def test_a_loss_that_a_dead_cluster_explains_is_not_checked_further() -> None:
    run = good_run()
    died = replace(run.record.faults[0], planned=PlannedFault(5, Target.RAY, "killed", 0, 1), attempt=None)
    words = report(replace(run, record=replace(run.record, faults=[died])), [])
    assert "1 lost attempts: a dead cluster or agent, a storage or a cut network explains them" in words


def test_the_report_ends_with_the_violations() -> None:
    assert report(good_run(), ["a trial is lost"]).endswith("1 VIOLATIONS\n  a trial is lost")


def test_a_killed_workers_recovery_is_its_trials_next_attempt() -> None:
    run = good_run()
    first, second = run.experiments[0].trials[0].attempts
    (found,) = recoveries(run)
    assert found.fault.target is Target.WORKER
    assert found.seconds == pytest.approx(second.started_at - run.record.faults[0].at)
    assert found.seconds > second.started_at - (first.ended_at or 0)


def test_a_services_recovery_counts_from_its_start_to_its_readiness() -> None:
    samples = [_sample(1010, ready=False), _sample(1012.5, ready=True), _sample(1013, ready=True)]
    found = {one.until: one.seconds for one in recoveries(_with_fault(Target.SERVICE, "service-0", samples))}
    assert found == {"it is ready": 0.5}


def test_the_mirror_has_caught_up_when_mlflow_answers_and_it_lags_no_more_than_before() -> None:
    lags = [(1003, 5), (1010, 300), (1012.5, 4), (1013.5, 90), (1014, 4)]
    samples = [_sample(at, ready=True, lag=lag) for at, lag in lags]
    samples += [Sample(1012.4, "mlflow", False, None, {}), Sample(1013.1, "mlflow", True, None, {})]
    found = {one.until: one.seconds for one in recoveries(_with_fault(Target.MLFLOW, "mlflow", samples))}
    assert found == {"it has caught up": 2}


def test_a_cut_networks_recovery_is_a_report_of_its_agent_after_it_is_back() -> None:
    run = good_run()
    first, later = (run.experiments[0].trials[0].curve[number].at for number in (0, 6))
    cut = replace(run.record.faults[0], planned=PlannedFault(1, Target.NETWORK, CUT, 0, 0), at=first, attempt=None)
    cut = replace(cut, name="network of agent-0")
    record = replace(run.record, faults=[cut], restarted={0: later - 0.1})
    (found,) = recoveries(replace(run, record=record))
    assert found.until == "its agent's report is stored"
    assert found.seconds == pytest.approx(later - first)


def _sample(at: float, *, ready: bool, lag: int | None = None) -> Sample:
    return Sample(at, "service-0", ready, lag, {})


def _with_fault(target: Target, who: str, samples: list[Sample]) -> Snapshot:
    """Fault at 1005 and started again at 1012."""
    fault = Fault(PlannedFault(5, target, "killed", 0, 7), 1005, who, 17)
    run = good_run()
    record = replace(run.record, faults=[fault], restarted={0: 1012}, samples=samples)
    return replace(run, record=record)
