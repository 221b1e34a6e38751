"""When used workers are to blame for a failure, and when a slot gives each trial new ones."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.client.errors import CallRefused
from trainer.slot.attempt.failure_classification import undelivered
from trainer.slot.attempt.outcome import COMPLETED, AttemptOutcome
from trainer.slot.worker_reuse import MAX_SUSPICIONS, WorkerReuse
from trainer.worker.failures import CANNOT_START, PREEMPTED, USER_ERROR, Failure


@dataclass
class Slot:
    """Trials on one worker group. As in a slot, the processes are replaced after a failure."""

    reuse: WorkerReuse = field(default_factory=WorkerReuse)
    command: list[str] | None = None
    pid: int = 1
    message: str = ""
    """of the last failure"""

    def run(
        self,
        trial: str,
        failure: str | None = None,
        *,
        reported: bool | None = None,
        began: bool = True,
        status: str = COMPLETED,
        of_package: bool = False,
        refused: bool = False,
    ) -> str:
        """Returns the outcome, or the kind of the failure."""
        trainer = SimpleNamespace(kind="torch", reuse_workers=True, command=self.command)
        attempt: Any = SimpleNamespace(
            assignment=SimpleNamespace(trial=trial, trainer=trainer),
            ranks=SimpleNamespace(started={0: SimpleNamespace(node="a", pid=self.pid)}),
            began_training=began,
            has_reported=failure is None if reported is None else reported,
            why_workers_not_reusable=lambda: failure,
        )
        self.reuse.begin()
        if self.reuse.why_replace(attempt, None) is not None:
            self.pid += 1
        failed = _failed(failure or "", of_package=of_package, refused=refused)
        found = AttemptOutcome(status, began=True) if failure is None else failed
        outcome = self.reuse.accepted(found, attempt)
        self.message = "" if outcome.failure is None else outcome.failure.message
        return outcome.status if outcome.failure is None else outcome.failure.kind

    def gives_new_workers(self) -> bool:
        """Whether each trial gets new ones."""
        before = self.pid
        self.run("another", reported=False)  # tells nothing
        return self.pid > before


def _failed(kind: str, *, of_package: bool, refused: bool) -> AttemptOutcome:
    failure = Failure(kind, "ValueError: a bad start", is_of_package=of_package)
    if refused:
        failure = undelivered(CallRefused(422, "unprocessable", "no such step"))
    return AttemptOutcome.failed(failure, began=True)


def test_a_failure_before_the_first_report_counts_in_new_workers_and_is_repeated_in_used_ones() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR) == PREEMPTED
    assert slot.run("second", USER_ERROR) == USER_ERROR
    assert not slot.gives_new_workers()
    assert slot.run("third", USER_ERROR) == USER_ERROR  # what is known of the second one is known of all


def test_a_trial_in_new_workers_that_fails_tells_nothing_of_used_ones() -> None:
    slot = Slot()
    assert slot.run("first", USER_ERROR) == USER_ERROR
    slot.run("second")
    assert slot.run("third", USER_ERROR) == PREEMPTED


def test_each_trial_gets_new_workers_after_two_have_failed_in_used_ones_alone() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR) == PREEMPTED
    assert slot.run("second") == COMPLETED
    assert not slot.gives_new_workers()
    assert slot.run("third", USER_ERROR) == PREEMPTED
    assert slot.run("third", USER_ERROR, reported=True) == USER_ERROR  # it has come further than in the used ones
    assert slot.gives_new_workers()


def test_one_repeated_trial_that_succeeds_counts_once() -> None:
    slot = Slot()
    slot.run("first")
    slot.run("second", USER_ERROR)
    slot.run("second", USER_ERROR, reported=True)
    slot.run("second")
    assert not slot.gives_new_workers()


def test_a_repeated_trial_that_is_stopped_before_its_first_report_tells_nothing() -> None:
    slot = Slot()
    for trial in ("second", "third"):
        slot.run(f"before the {trial}", reported=False)
        assert slot.run(trial, USER_ERROR) == PREEMPTED
        slot.run(trial, status="stopped", reported=False)
    assert not slot.gives_new_workers()


def test_chance_failures_among_trials_that_report_in_used_workers_are_repeated_and_cost_no_more() -> None:
    slot = Slot()
    slot.run("first")
    for number in range(2 * MAX_SUSPICIONS):
        slot.run(f"good {number}")
        assert slot.run(f"unlucky {number}", USER_ERROR) == PREEMPTED
        assert slot.run(f"unlucky {number}") == COMPLETED
    assert not slot.gives_new_workers()


def test_a_failure_after_a_report_or_of_a_command_counts() -> None:
    for slot, reported in [(Slot(), True), (Slot(command=["false"]), False)]:
        slot.run("first")
        assert slot.run("second", USER_ERROR, reported=reported) == USER_ERROR


def test_a_failure_after_a_report_says_in_used_workers_alone_that_they_may_be_to_blame() -> None:
    slot = Slot()
    slot.run("first", USER_ERROR, reported=True)
    assert slot.message == "ValueError: a bad start"
    slot.run("second")
    assert slot.run("third", USER_ERROR, reported=True) == USER_ERROR
    assert slot.message.startswith("ValueError: a bad start; this process ran other trials before: ")
    assert slot.message.endswith("set trainer.reuse_workers: false")


def test_a_failure_after_a_report_that_the_package_has_raised_itself_does_not_blame_used_workers() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR, reported=True, of_package=True) == USER_ERROR
    assert slot.message == "ValueError: a bad start"


def test_a_report_that_the_service_refuses_does_not_blame_used_workers() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR, reported=True, refused=True) == USER_ERROR
    assert slot.message == "the service refused a report: no such step"


def fail_late_in_used_workers_and_succeed_in_new_ones(slot: Slot, name: str, *, of_package: bool = False) -> None:
    assert slot.run(f"failing {name}", USER_ERROR, reported=True, of_package=of_package) == USER_ERROR
    assert slot.run(f"succeeding {name}") == COMPLETED


@pytest.mark.parametrize("of_package", [False, True])
def test_each_trial_gets_new_workers_if_trials_fail_after_their_reports_in_used_ones_alone(of_package: bool) -> None:
    slot = Slot()
    slot.run("first")
    fail_late_in_used_workers_and_succeed_in_new_ones(slot, "1", of_package=of_package)
    fail_late_in_used_workers_and_succeed_in_new_ones(slot, "2", of_package=of_package)
    assert slot.gives_new_workers()


def test_failures_after_reports_tell_nothing_among_successes_in_used_workers_or_failures_in_new_ones() -> None:
    slot = Slot()
    slot.run("first")
    for number in range(4):
        fail_late_in_used_workers_and_succeed_in_new_ones(slot, f"before a success {number}")
        slot.run(f"in used ones {number}")
    for number in range(4):
        fail_late_in_used_workers_and_succeed_in_new_ones(slot, f"before a failure {number}")
        slot.run(f"in used ones again {number}", USER_ERROR, reported=True)
        slot.run(f"in new ones {number}", USER_ERROR, reported=True)
        slot.run(f"in new ones {number}, which succeeds")
    assert not slot.gives_new_workers()


def test_a_trial_that_is_stopped_in_new_workers_tells_nothing_of_a_failure_after_a_report() -> None:
    slot = Slot()
    slot.run("first")
    for number in range(3):
        slot.run(f"failing {number}", USER_ERROR, reported=True)
        slot.run(f"stopped {number}", status="stopped", reported=True)
    assert not slot.gives_new_workers()


def test_a_trial_is_repeated_once_wherever_its_next_attempt_runs() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR) == PREEMPTED
    slot.run("third")
    assert slot.run("second", USER_ERROR) == USER_ERROR


def test_a_slot_repeats_three_trials_in_a_row_at_most() -> None:
    slot, kinds = Slot(), []
    for number in range(MAX_SUSPICIONS + 1):
        slot.run(f"good {number}", reported=False)
        kinds.append(slot.run(f"bad {number}", USER_ERROR))
    assert kinds == [PREEMPTED] * MAX_SUSPICIONS + [USER_ERROR]


def test_new_workers_of_an_elastic_group_are_not_used_ones() -> None:
    slot = Slot()
    slot.run("first")
    slot.pid += 1  # it has another size now
    assert slot.run("second", CANNOT_START, began=False, reported=False) == CANNOT_START
    assert not slot.gives_new_workers()


def test_a_package_that_cannot_be_imported_again_is_repeated_and_gets_new_workers() -> None:
    slot = Slot()
    assert slot.run("first", CANNOT_START, began=False, reported=False) == CANNOT_START
    slot.run("second")
    assert slot.run("third", CANNOT_START, began=False, reported=False) == PREEMPTED
    assert slot.gives_new_workers()
