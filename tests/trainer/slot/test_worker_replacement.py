"""When used workers are to blame for a failure, and when a slot gives each trial new ones."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from trainer.slot.attempt.outcome import Outcome
from trainer.slot.worker_replacement import MAX_SECOND_TRIES, WorkerReuse
from trainer.worker.failures import CANNOT_START, PREEMPTED, USER_ERROR, Failure


@dataclass
class Slot:
    """Trials on one worker group. As in a slot, the processes are replaced after a failure."""

    reuse: WorkerReuse = field(default_factory=WorkerReuse)
    trainer: dict[str, Any] = field(default_factory=dict)
    _next_is_new: bool = True

    def run(self, trial: str, failure: str | None = None, *, reported: bool | None = None, began: bool = True) -> str:
        """Returns the outcome, or the kind of the failure."""
        trainer = {"kind": "torch", "reuse_workers": True, "command": None} | self.trainer
        attempt: Any = SimpleNamespace(
            assignment=SimpleNamespace(trial=trial, trainer=SimpleNamespace(**trainer)),
            began_training=began,
            has_reported=failure is None if reported is None else reported,
            why_workers_not_reusable=lambda: failure,
        )
        self.reuse.begin()
        self._next_is_new = self.reuse.why_replace(attempt, None) is not None
        found = Outcome("completed", began=True) if failure is None else _failed(failure)
        outcome = self.reuse.accepted(found, attempt)
        return outcome.status if outcome.failure is None else outcome.failure.kind

    def gives_new_workers(self) -> bool:
        """Whether each trial gets new ones."""
        self.run("another")
        return self._next_is_new


def _failed(kind: str) -> Outcome:
    return Outcome.failed(Failure(kind, "ValueError: a bad start"), began=True)


def test_a_failure_before_the_first_report_counts_in_new_workers_and_is_repeated_in_used_ones() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR) == PREEMPTED
    assert slot.run("second", USER_ERROR) == USER_ERROR
    assert not slot.gives_new_workers()
    assert slot.run("third", USER_ERROR) == USER_ERROR  # what is known of the second one is known of all


def test_a_first_trial_that_fails_is_not_repeated() -> None:
    assert Slot().run("first", USER_ERROR) == USER_ERROR


def test_each_trial_gets_new_workers_after_two_have_failed_in_used_ones_alone() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR) == PREEMPTED
    assert slot.run("second") == "completed"
    assert not slot.gives_new_workers()
    assert slot.run("third", USER_ERROR) == PREEMPTED
    assert slot.run("third", USER_ERROR, reported=True) == USER_ERROR  # it has come further than in the used ones
    assert slot.gives_new_workers()


def test_a_failure_after_a_report_or_of_a_command_counts() -> None:
    slot = Slot()
    slot.run("first")
    assert slot.run("second", USER_ERROR, reported=True) == USER_ERROR
    slot = Slot(trainer={"kind": "command", "command": ["false"]})
    slot.run("first")
    assert slot.run("second", USER_ERROR) == USER_ERROR


def test_a_slot_whose_trials_are_repeated_elsewhere_does_not_go_on_so() -> None:
    slot, kinds = Slot(), []
    for number in range(MAX_SECOND_TRIES + 1):
        slot.run(f"good {number}")
        kinds.append(slot.run(f"bad {number}", USER_ERROR))
    assert kinds == [PREEMPTED] * MAX_SECOND_TRIES + [USER_ERROR]


def test_a_package_that_cannot_be_imported_again_is_repeated_and_gets_new_workers() -> None:
    slot = Slot()
    assert slot.run("first", CANNOT_START, began=False, reported=False) == CANNOT_START
    slot.run("second")
    assert slot.run("third", CANNOT_START, began=False, reported=False) == PREEMPTED
    assert slot.gives_new_workers()
