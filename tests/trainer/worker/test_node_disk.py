"""A full disk of a node, while what a trial needs is put there, is not the user's error. Starts no Ray."""

import errno
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from tests.trainer.conftest import set_constant
from trainer.worker.datasets.dataset_server import DatasetMaker
from trainer.worker.failures import CANNOT_START, LOST, DatasetNotMade, Failure, describe
from trainer.worker.node_disk import NodeDiskFailed
from trainer.worker.rank_session import Job, RankSession
from trainer.worker.user_code.user_code import enter_package
from trainer.worker.user_process import UserProcess
from trainer.worker.validation import ValidationJob, validate

pytestmark = pytest.mark.ray  # Ray's filters of warnings: importing it

SHUT_OUT = "[Errno {}] {}: 'file'; the node's temporary directory must have room and work (rank 0 of 1)"
COMMAND = {"argv": ["true"], "params": {}, "stop_grace_seconds": 1.0}


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code), "file")

    return fail


def package() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("train.py", "def train_fn(): pass")
    return content.getvalue()


@pytest.fixture
def session_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RankSession]:
    """The session of a rank of a trial with these fields of its `Job`."""
    (tmp_path / "runs" / "experiment" / "run").mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "get", lambda value: value)
    set_constant(monkeypatch, RankSession.__init__, "world", lambda: (0, 1))
    set_constant(monkeypatch, RankSession._load, "ranks_of_node", lambda: 1)
    set_constant(monkeypatch, RankSession._load, "working_directory", lambda: tmp_path / "runs/experiment/run")

    def session_of(**fields: Any) -> RankSession:
        made = {"package": package(), "package_name": "package.zip", "package_folder": "paceline-slot.a", **fields}
        given: dict[str, Any] = {"entrypoint": "train:train_fn", "command": None, **made}
        return RankSession(Job("run", SimpleNamespace(), config={}, resume=None, event_files=None, **given))

    return session_of


@pytest.fixture
def failure_of(session_of: Callable[..., RankSession]) -> Callable[..., Failure]:
    """The failure of a rank of a trial with these fields of its `Job`."""

    def failure_of(**fields: Any) -> Failure:
        failure = session_of(**fields)._train().failure
        assert failure is not None
        return failure

    return failure_of


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize(
    ("where", "name", "fields", "what"),
    [
        (zipfile.ZipFile, "extractall", {}, "the package cannot be unpacked"),
        (tempfile, "mkdtemp", {}, "the package cannot be unpacked"),
        (shutil, "copy2", {}, "the package's files cannot be put into the working directory"),
        (
            tempfile,
            "mkdtemp",
            {"entrypoint": None, "command": COMMAND, "package": None},
            "the command's checkpoint directory cannot be made",
        ),
    ],
    ids=["unpacking", "folder", "filling", "command"],
)
def test_a_node_without_room_for_the_package_loses_the_attempt_and_does_not_fail_the_trial(
    failure_of: Callable[..., Failure],
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    fields: dict[str, Any],
    what: str,
    code: int,
) -> None:
    monkeypatch.setattr(where, name, failing(code))
    failure = failure_of(**fields)
    assert failure.kind == LOST
    assert failure.message == f"{what}: {SHUT_OUT.format(code, os.strerror(code))}"


def full(_: Any) -> Any:
    raise ray.exceptions.OutOfDiskError("00ff", "owner", "call site")


def test_an_object_store_without_room_for_the_package_loses_the_attempt(
    failure_of: Callable[..., Failure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "get", full)
    failure = failure_of()
    assert failure.kind == LOST
    assert failure.message.startswith("the package cannot be unpacked: the disk of the node's object store is full; ")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_node_whose_object_store_has_no_room_afterwards_either_has_a_failed_disk(
    session_of: Callable[..., RankSession], monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """Ray takes no object on a disk that is 95 % full, where files still have room."""
    session = session_of()
    monkeypatch.setattr(ray, "get", full)
    monkeypatch.setattr(ray, "put", full if is_full else lambda _: None)
    baseline: Any = SimpleNamespace(streams=SimpleNamespace(put_back=lambda: None))
    failure = session._left(baseline, session._train()).failure
    assert failure is not None
    assert (failure.kind, failure.is_of_node_disk) == (LOST, is_full)


@pytest.mark.parametrize("code", [errno.ENAMETOOLONG, errno.EISDIR])
def test_a_package_that_no_node_can_unpack_cannot_start(
    failure_of: Callable[..., Failure], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "extractall", failing(code))
    assert failure_of().kind == CANNOT_START


def test_an_error_of_the_disk_in_the_users_own_import_cannot_start(failure_of: Callable[..., Failure]) -> None:
    content = f"raise OSError({errno.ENOSPC}, 'no room')".encode()
    assert failure_of(package=content, package_name="train.py").kind == CANNOT_START


def test_a_node_without_room_for_the_package_of_the_datasets_loses_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(zipfile.ZipFile, "extractall", failing(errno.ENOSPC))

    def make() -> dict[str, Any]:
        enter_package(package(), "package.zip", "paceline-slot.a")
        return {}

    with pytest.raises(DatasetNotMade) as raised:
        DatasetMaker(keeps_failure=True).datasets(make)
    assert raised.value.failure.kind == LOST


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, LOST), (errno.ENAMETOOLONG, CANNOT_START)])
def test_a_validation_says_why_its_package_cannot_be_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(zipfile.ZipFile, "extractall", failing(code))
    set_constant(monkeypatch, validate, "this_process", lambda: UserProcess("n", [], None))
    answers = SimpleNamespace(remote=lambda *_: 0)
    slot = SimpleNamespace(validation_began=answers, log=answers)
    job = ValidationJob("run", slot, "train:validate", package(), "package.zip", "paceline-slot.a", False, 1, "/c", {})
    metrics, failure = validate(job)
    assert metrics is None
    assert failure
    assert failure["kind"] == kind
    assert os.strerror(code) in failure["message"]


def test_what_was_unpacked_before_the_disk_was_full_is_removed(
    failure_of: Callable[..., Failure], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "extractall", failing(errno.ENOSPC))
    failure_of()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("is_importing", [True, False])
def test_a_failed_disk_is_told_with_whether_the_function_had_begun(is_importing: bool) -> None:
    failure = describe(NodeDiskFailed("no room"), rank=0, world_size=1, is_importing=is_importing, folder=None)
    assert (failure.kind, failure.is_of_node_disk, failure.is_at_start) == (LOST, True, is_importing)


@pytest.mark.parametrize("is_full", [True, False])
def test_only_a_disk_that_is_full_without_the_trials_files_counts_as_the_nodes(
    session_of: Callable[..., RankSession], monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    session = session_of()
    monkeypatch.setattr(zipfile.ZipFile, "extractall", failing(errno.ENOSPC))
    if is_full:
        monkeypatch.setattr(tempfile, "TemporaryFile", failing(errno.ENOSPC))
    baseline: Any = SimpleNamespace(streams=SimpleNamespace(put_back=lambda: None))
    failure = session._left(baseline, session._train()).failure
    assert failure is not None
    assert (failure.kind, failure.is_of_node_disk) == (LOST, is_full)


def test_a_node_whose_processes_can_open_no_more_files_has_no_failed_disk() -> None:
    error = NodeDiskFailed(f"the checkpoint cannot be read: {OSError(errno.EMFILE, os.strerror(errno.EMFILE))}")
    failure = describe(error, rank=0, world_size=1, is_importing=False, folder=None)
    assert (failure.kind, failure.is_of_node_disk) == (LOST, False)
