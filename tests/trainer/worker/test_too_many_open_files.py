"""Whose failure it is that a worker can open no more files: its process's, or its node's."""

import errno
import os

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from trainer.slot.attempt.failure_classification import classify
from trainer.worker.failures import LOST, USER_ERROR, describe, not_read, not_saved

pytestmark = pytest.mark.ray  # Ray's filters of warnings: importing it


@pytest.mark.parametrize("place", ["saving", "reading", "elsewhere"])
@pytest.mark.parametrize(
    ("code", "is_command", "kind", "whose"),
    [
        (errno.EMFILE, False, USER_ERROR, "the process has reached its limit of open files ("),
        (errno.EMFILE, True, LOST, "the process has reached its limit of open files ("),
        (errno.ENFILE, False, LOST, "all processes of the node together have reached its limit"),
        (errno.ENFILE, True, LOST, "all processes of the node together have reached its limit"),
    ],
)
def test_only_a_process_that_runs_a_function_has_opened_the_users_files(
    code: int, is_command: bool, kind: str, whose: str, place: str
) -> None:
    error = OSError(code, os.strerror(code), "state")
    raised = {
        "saving": not_saved("/storage", error),
        "reading": not_read("/storage/1", error),
        "elsewhere": error,
    }[place]
    failure = describe(raised, rank=0, world_size=1, is_importing=False, folder=None, is_command=is_command)
    assert failure.kind == kind
    assert whose in failure.message
    assert "storage must" not in failure.message
    assert "be able to read" not in failure.message


def test_the_limit_of_another_process_is_not_told() -> None:
    os_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "state")
    failure = classify(os_error, workers="", storage="/storage", has_oom_kill=False)
    assert "the process has reached its limit of open files (ulimit -n)" in failure.message


def test_a_controller_that_can_open_no_more_files_blames_no_storage() -> None:
    os_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/storage/run")
    told = (
        "raised in its creation task\n  StorageContext(path)\nOSError: [Errno 24] Too many open files: '/storage/run'\n"
    )
    died = ActorDiedError(RayTaskError("TrainController.__init__", told, os_error, actor_id="0a1b"))
    failure = classify(died, workers="", storage="/storage", has_oom_kill=False)
    assert failure.kind == LOST
    assert failure.message.startswith("the workers could not be set up: OSError: [Errno 24] Too many open files")
    assert "reached its limit of open files" in failure.message
