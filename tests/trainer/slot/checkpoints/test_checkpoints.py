"""The checkpoints on disk are those that the service knows; others are removed soon. Real Ray, real kills."""

import os
import signal
from pathlib import Path

import pytest

from tests.trainer.conftest import (
    OOM_COUNTER,
    Add,
    answers_awaited_for,
    failure_in_new_processes,
    pid_of,
    slot_of,
    until,
)
from tests.trainer.fake_service import FakeService
from trainer.wire import Answer, FailureKind, Outcome, Report

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def lines(record: Path, first_word: str) -> list[str]:
    found = record.read_text().splitlines() if record.exists() else []
    return [line.split(" ", 1)[1] for line in found if line.split()[1] == first_word]


def known(service: FakeService, trial: str) -> list[str]:
    return [r.checkpoint for r in service.reports[trial] if r.checkpoint]


def on_disk(service: FakeService, trial: str) -> set[str]:
    return {str(path) for path in Path(service.storage).glob(f"*{trial}*/checkpoint_2*")}


def test_only_the_newest_checkpoints_that_the_service_knows_are_kept(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("save_and_list", config={"expected": 2}, keep_checkpoints=2)
    assert service.finished(trial).outcome == Outcome.COMPLETED
    until(lambda: on_disk(service, trial) == set(known(service, trial)[-2:]), "the older ones are removed")
    assert lines(record, "listed") == ["listed 2 5", "listed 2 5"]


def test_a_checkpoint_whose_name_is_used_again_is_saved_beside_the_earlier_one(service: FakeService, add: Add) -> None:
    trial = add("save", config={"steps": 5, "names": "ab"}, keep_checkpoints=2)
    assert service.finished(trial).outcome == Outcome.COMPLETED
    saved = [Path(one) for one in known(service, trial)]
    assert [one.name for one in saved] == ["b", "a", "b-2", "a-3", "b-4"]
    until(lambda: not any(one.exists() for one in saved[:3]), "the older ones are removed")
    assert [[(one / f"shard-{rank}").read_text() for rank in (0, 1)] for one in saved[3:]] == [["4"] * 2, ["5"] * 2]


def test_a_checkpoint_that_the_service_wants_to_be_kept_stays_on_disk(service: FakeService, add: Add) -> None:
    first: list[str] = []

    def keep_the_first(_trial: str, report: Report) -> Answer:
        if report.checkpoint and not first:
            first.append(report.checkpoint)
        return Answer(kept=[*first, report.checkpoint] if report.checkpoint else [])

    service.decide = keep_the_first
    trial = add("save", config={"steps": 4})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    until(lambda: on_disk(service, trial) == {first[0], known(service, trial)[-1]}, "the others are removed")


def test_a_slot_killed_while_the_service_is_away_leaves_the_checkpoint_that_the_service_knows(
    service: FakeService, add: Add, record: Path
) -> None:
    with answers_awaited_for(0.5):
        trial = add("save", config={"steps": 10_000, "pause": 0.05}, experiment="x-away")
        service.wait_for(lambda: len(known(service, trial)) >= 2, what="two checkpoints")
    service.away = True
    newest = known(service, trial)[-1]
    until(
        lambda: len({path for path in on_disk(service, trial) if path > newest}) >= 4, "some more that it does not know"
    )
    os.kill(pid_of(slot_of(trial)), signal.SIGKILL)
    service.lose(trial)
    service.away = False
    assert known(service, trial)[-1] == newest
    step = len(known(service, trial))
    resumed = add("save", config={"steps": 2}, resume={"uri": newest, "step": step})
    assert service.finished(resumed).outcome == Outcome.COMPLETED
    assert lines(record, "from")[-2:] == [f"from {step}"] * 2
    assert [r.metrics["epoch"] for r in service.reports[resumed]] == [step + 1, step + 2]


def test_after_a_kill_during_a_save_the_trial_resumes_from_the_previous_checkpoint(
    service: FakeService, add: Add, record: Path
) -> None:
    trial = add("save_half")
    _, pid, half = until(lambda: lines(record, "uploading"), "rank 1 saves")[0].split()
    service.wait_for(lambda: known(service, trial), what="the first checkpoint")
    os.kill(int(pid), signal.SIGKILL)
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.LOST
    (whole,) = known(service, trial)
    assert whole != half
    until(lambda: not Path(half).exists(), "the checkpoint that no attempt can resume from is removed")
    resumed = add("save_half", resume={"uri": whole, "step": 1})
    assert service.finished(resumed).outcome == Outcome.COMPLETED
    assert lines(record, "from") == ["from 0", "from 0", "from 1", "from 1"]
    assert [r.metrics["epoch"] for r in service.reports[resumed]] == [2]


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_storage_that_cannot_be_written_is_reported_at_the_start(
    service: FakeService, add: Add, tmp_path: Path, reuse_workers: bool
) -> None:
    (tmp_path / "file").touch()
    nowhere = f"{tmp_path}/file/checkpoints"
    error = service.finished(add("save", trainer={"reuse_workers": reuse_workers}, storage_path=nowhere)).error
    assert error is not None
    assert (error.kind, error.began) == (FailureKind.LOST, False), "it may be away for a while"
    assert error.message.startswith(f"checkpoints cannot be stored at {nowhere}: NotADirectoryError")
    assert error.message.endswith("must have room, and every node must be able to write to it")


def test_a_full_storage_is_reported_with_its_path(service: FakeService, add: Add) -> None:
    error = service.finished(add("find_no_room")).error
    assert error is not None
    assert (error.kind, error.began) == (FailureKind.LOST, True)
    assert f"could not be saved in {service.storage}" in error.message
    assert "No space left on device" in error.message
    assert "must have room" in error.message


@pytest.mark.parametrize("reuse_workers", [True, False])
@pytest.mark.parametrize(
    ("raises", "kind", "message"),
    [
        ("QuotaUsedUp", FailureKind.USER_ERROR, "QuotaUsedUp: no more today (rank "),
        ("OSError", FailureKind.LOST, "NotSaved: the checkpoint could not be saved in "),
    ],
)
def test_an_upload_that_fails_in_the_background_fails_the_trial_as_one_in_a_report_does(
    service: FakeService, add: Add, raises: str, kind: FailureKind, message: str, reuse_workers: bool
) -> None:
    trainer = {"reuse_workers": reuse_workers}
    trial = add("fail_to_save_in_the_background", config={"raises": raises}, trainer=trainer)
    error = service.finished(trial).error
    assert error is not None
    assert (error.kind, error.began) == (kind, True)
    assert error.message.startswith(message)
    assert "train.py" in error.message
    assert "in upload" in (error.traceback or "")
    assert "in upload" in service.log(trial, error.ranks[0].rank)


def test_a_storage_that_goes_away_is_not_the_users_error(service: FakeService, add: Add) -> None:
    error = service.finished(add("lose_the_storage")).error
    assert error is not None
    assert (error.kind, error.began) == (FailureKind.LOST, True), "it may be away for a while"
    assert f"could not be saved in {service.storage}" in error.message


def test_a_checkpoint_that_was_never_written_is_the_users_error(service: FakeService, add: Add) -> None:
    _, error = failure_in_new_processes(service, lambda: add("save_from_nowhere"))
    assert error.kind == FailureKind.USER_ERROR


def test_a_kill_by_the_kernel_for_lack_of_memory_is_out_of_memory(service: FakeService, add: Add) -> None:
    OOM_COUNTER.write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n")
    try:
        error = service.finished(add("be_killed_by_the_kernel", config={"counter": str(OOM_COUNTER)})).error
    finally:
        OOM_COUNTER.unlink()
    assert error is not None
    assert error.kind == FailureKind.OUT_OF_MEMORY
    assert error.message.startswith("a worker process (rank 1) was killed, and the kernel's OOM killer was active")
