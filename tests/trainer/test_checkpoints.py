"""Checkpoints on a real Ray: which ones are there when the training function, or a later attempt, reads them."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import USER_CODE, Add, failure_in_new_processes, until
from tests.trainer.fake_service import FakeService
from trainer.wire import FailureKind, Outcome

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def saves(service: FakeService) -> dict[str, Any]:
    """The package as a part of `trainer`."""
    code = USER_CODE.with_name("saves.py").read_text()
    return {"package": service.add_package(code), "scaling": {"num_workers": 1}}


def saved_by(service: FakeService, trial: str) -> list[Path]:
    return [Path(report.checkpoint) for report in service.reports[trial] if report.checkpoint]


def test_checkpoints_are_complete_and_a_trial_resumes_from_one(service: FakeService, add: Add, record: Path) -> None:
    trial = add("save", config={"steps": 3}, keep_checkpoints=2)
    assert service.finished(trial).outcome == Outcome.COMPLETED
    saved = saved_by(service, trial)
    assert len(saved) == len(set(saved)) == 3
    newest = saved[-1]
    assert {f.name: f.read_text() for f in newest.iterdir()} == {"shard-0": "3", "shard-1": "3"}
    assert {r.checkpoint_bytes for r in service.reports[trial] if r.checkpoint} == {2}

    resumed = add("save", config={"steps": 1}, resume={"uri": str(newest), "step": 3})
    assert service.finished(resumed).outcome == Outcome.COMPLETED
    begun = [line.split(" ", 1)[1] for line in record.read_text().splitlines() if " from " in line]
    assert begun == ["from 0", "from 0", "from 3", "from 3"]


def test_a_checkpoint_saved_in_the_background_is_delivered_with_its_report(service: FakeService, add: Add) -> None:
    trial = add("save_in_the_background", config={"steps": 2})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    saved = {r.sequence: r.checkpoint for r in service.reports[trial] if r.checkpoint}
    assert sorted(saved) == [0, 1]
    sizes = {r.checkpoint_bytes for r in service.reports[trial] if r.checkpoint}
    assert sizes <= {2, None}, "unknown if Ray has saved it before the slot has heard of both ranks"
    assert Path(saved[1] or "", "shard-1").read_text() == "2"


def test_a_checkpoint_with_a_question_mark_in_its_name_outlives_a_failure_and_is_resumed_from(
    service: FakeService, add: Add, saves: dict[str, Any]
) -> None:
    failing = add(trainer={**saves, "entrypoint": "train:save_and_fail"}, config={"name": "lr=0.1?epoch=0"})
    again = add(trainer={**saves, "entrypoint": "train:save_and_fail"}, config={"name": "epoch-1"})
    assert [service.finished(trial).outcome for trial in (failing, again)] == [Outcome.FAILED] * 2
    (saved,) = saved_by(service, failing)
    assert saved.name == "lr=0.1?epoch=0"
    assert (saved / "state").read_text() == "saved"
    spec = {**saves, "entrypoint": "train:read_again"}
    resumed = add(trainer=spec, config={"name": None}, resume={"uri": str(saved), "step": 1})
    assert service.finished(resumed).outcome == Outcome.COMPLETED
    assert service.reports[resumed][-1].metrics["text"] == "saved"


@pytest.mark.parametrize(("name", "said"), [("../evil", "within the folder of the trial"), ("n" * 300, "240 bytes")])
def test_a_name_that_no_checkpoint_can_have_is_the_users_error(
    service: FakeService, add: Add, saves: dict[str, Any], name: str, said: str
) -> None:
    spec = {**saves, "entrypoint": "train:read_again"}
    trial, error = failure_in_new_processes(service, lambda: add(trainer=spec, config={"name": name}))
    assert error.kind == FailureKind.USER_ERROR
    assert said in error.message
    assert saved_by(service, trial) == []


def test_a_file_whose_name_is_not_utf_8_is_named(service: FakeService, add: Add, saves: dict[str, Any]) -> None:
    spec = {**saves, "entrypoint": "train:save_badly_named", "reuse_workers": False}
    trial = add(trainer=spec)
    error = service.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert "the checkpoint's file b'caf\\xe9' cannot be saved: its name is not UTF-8" in error.message
    assert len(saved_by(service, trial)) == 1


def test_files_in_a_linked_folder_are_saved(service: FakeService, add: Add, saves: dict[str, Any]) -> None:
    trial = add(trainer={**saves, "entrypoint": "train:save_links"}, config={"bad": None})
    assert service.finished(trial).outcome == Outcome.COMPLETED
    newest = saved_by(service, trial)[-1]
    assert (newest / "linked" / "state").read_text() == "second"
    assert not (newest / "linked").is_symlink()
    assert service.reports[trial][-1].checkpoint_bytes == len("second")


@pytest.mark.parametrize("bad", ["nowhere", ".", "..", "/"])
def test_a_link_that_leads_nowhere_or_in_a_circle_is_the_users_error(
    service: FakeService, add: Add, saves: dict[str, Any], bad: str
) -> None:
    spec = {**saves, "entrypoint": "train:save_links", "reuse_workers": False}
    error = service.finished(add(trainer=spec, config={"bad": bad})).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert f"the checkpoint cannot be saved: the link 'bad' to {bad!r} leads to " in error.message


def test_a_function_that_leaves_no_descriptor_to_save_with_is_told_so(
    service: FakeService, add: Add, saves: dict[str, Any]
) -> None:
    error = service.finished(add(trainer={**saves, "entrypoint": "train:save_without_descriptors"})).error
    assert error is not None
    assert error.kind == FailureKind.USER_ERROR
    assert "Too many open files" in error.message
    assert "the process has reached its limit of open files (" in error.message
    assert "storage must have room" not in error.message


def test_the_checkpoint_that_an_attempt_has_resumed_from_stays_until_its_end(
    service: FakeService, add: Add, saves: dict[str, Any]
) -> None:
    spec = {**saves, "entrypoint": "train:read_again"}
    first = add(trainer=spec, config={"name": None})
    assert service.finished(first).outcome == Outcome.COMPLETED
    (old,) = saved_by(service, first)
    earlier = {"earlier_checkpoints": [str(old)], "earlier_runs": [old.parent.name]}
    second = add(
        trainer=spec, config={"name": None}, resume={"uri": str(old), "step": 1}, keep_checkpoints=1, **earlier
    )
    end = service.finished(second)
    assert end.outcome == Outcome.COMPLETED, end.error and end.error.message
    assert service.reports[second][-1].metrics["text"] == "first"
    until(lambda: not old.parent.exists(), "the earlier run is removed")
    assert saved_by(service, second)[-1].exists()
