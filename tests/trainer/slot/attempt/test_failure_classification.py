"""Why attempts fail: what a rank reports, what the errors of Ray mean, and what the service gets."""

import errno
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayTaskError,
    RpcError,
)
from ray.train import CheckpointConfig
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.storage import StorageContext

from trainer import wire
from trainer.slot.attempt.failure_classification import LIBRARY_ADVICE, classify, to_json
from trainer.slot.attempt.ranks import Ranks
from trainer.worker.failures import (
    CANNOT_START,
    LOST,
    MODULE_ADVICE,
    OUT_OF_MEMORY,
    PREEMPTED,
    TASK_ADVICE,
    USER_ERROR,
    Failure,
    describe,
    not_read,
    not_saved,
)
from trainer.worker.user_code.user_code import call, find_function, unpack

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray


def test_the_kinds_are_those_of_the_wire() -> None:
    kinds = {
        LOST,
        PREEMPTED,
        OUT_OF_MEMORY,
        USER_ERROR,
        CANNOT_START,
    }
    # The service finds the others by itself.
    assert kinds == {kind.value for kind in wire.FailureKind} - {"silent", "diverged"}


@pytest.mark.parametrize("ranks", [1, 64])
def test_a_failure_is_sent_in_texts_that_the_service_can_store(ranks: int) -> None:
    traceback = "Traceback\0" + 300_000 * "\udce9"
    message = "\x1b[36mno file \udce9\0" + 5_000 * "x"
    sent = to_json(Failure("user_error", message, traceback, dict.fromkeys(range(ranks), traceback)), began=True)
    failure = wire.Failure.model_validate(sent)
    assert failure.message.startswith("no file ??")
    assert len(failure.message) <= 2_000
    assert len(failure.ranks) == ranks
    assert max(len(text) for text in (failure.traceback or "", *(r.traceback for r in failure.ranks))) <= 100_000
    assert len(failure.model_dump_json()) < 1_000_000


def test_a_failure_names_rank_and_line_and_hides_our_own_frames(tmp_path: Path) -> None:
    folder = unpack(b"def go():\n    raise KeyError('lr')\n", "fails.py", tmp_path / "code")
    try:
        call(find_function("fails:go", folder), {})
    except KeyError as error:
        failure = describe(error, rank=1, world_size=2, is_importing=False, folder=str(folder))
    assert failure.message == "KeyError: 'lr' (rank 1 of 2, fails.py:2)"
    assert "fails.py" in (failure.traceback or "")
    assert "user_code.py" not in (failure.traceback or "")


FAILING = """
import json
from contextlib import suppress
registry = {}
def raises(): raise ValueError("a loss that is NaN")
def misses(): return registry["lr"]
def asserts(): assert registry
def reads(): return json.loads("{")
def converts(): return int("x")
def finds(): return json.no_such_function
def wraps():
    try:
        reads()
    except ValueError as error:
        raise RuntimeError("no data") from error
def handles():
    try:
        reads()
    except ValueError:
        raise RuntimeError("no data")
def replaces():
    try:
        reads()
    except ValueError:
        raise RuntimeError("no data") from None
"""


@pytest.mark.parametrize(
    ("name", "is_of_package"),
    [
        *((name, True) for name in ("raises", "misses", "asserts", "replaces")),
        *((name, False) for name in ("reads", "converts", "wraps", "handles", "finds")),
    ],
)
def test_what_the_package_has_raised_itself_is_told_from_what_a_library_has_raised(
    tmp_path: Path, name: str, is_of_package: bool
) -> None:
    folder = unpack(FAILING.encode(), "fails.py", tmp_path / "code")
    with pytest.raises((ValueError, KeyError, AssertionError, RuntimeError, AttributeError)) as caught:
        call(find_function(f"fails:{name}", folder), {})
    failure = describe(caught.value, rank=0, world_size=1, is_importing=False, folder=str(folder))
    assert failure.is_of_package is is_of_package


def test_a_missing_module_is_answered_with_where_to_get_it() -> None:
    error = ModuleNotFoundError("No module named 'timm'", name="timm")
    failure = describe(error, rank=0, world_size=1, is_importing=True, folder=None)
    message = f"ModuleNotFoundError: No module named 'timm' (rank 0 of 1); {MODULE_ADVICE}"
    assert (failure.kind, failure.message) == ("cannot_start", message)


class AsksItsData(Exception):
    def __getattr__(self, name: str) -> Any:
        return self.__dict__["data"][name]


class AnswersNone(Exception):
    def __getattr__(self, name: str) -> None:
        return None


class HasWorkerFailures(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.worker_failures = ["a"]


class HasBrokenDict(Exception):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise KeyError("__dict__")


@pytest.mark.parametrize("error_class", [AsksItsData, AnswersNone, HasWorkerFailures])
def test_an_exception_with_odd_attributes_is_described_like_others(error_class: type[Exception]) -> None:
    with pytest.raises(error_class) as caught:
        raise error_class("careless")
    failure = describe(caught.value, rank=0, world_size=1, is_importing=False, folder=None)
    assert failure.kind == USER_ERROR
    assert failure.message.startswith(f"{error_class.__name__}: careless (rank 0 of 1, test_failure_classification.py:")
    assert "test_failure_classification.py" in (failure.traceback or "")


def test_an_exception_that_cannot_be_looked_at_is_the_users_error_too() -> None:
    failure = describe(HasBrokenDict("x"), rank=1, world_size=2, is_importing=False, folder=None)
    assert failure.kind == USER_ERROR
    assert failure.message == "HasBrokenDict (rank 1 of 2); it cannot be described, because that raised KeyError"


def test_a_syntax_error_whose_file_name_is_no_text_is_described_without_it() -> None:
    error = SyntaxError("bad")
    error.filename, error.lineno = b"abc", 3  # type: ignore[assignment]
    failure = describe(error, rank=0, world_size=1, is_importing=False, folder=None)
    assert (failure.kind, failure.message) == (USER_ERROR, "SyntaxError: bad (line 3) (rank 0 of 1)")


@pytest.mark.parametrize("is_in_worker", [True, False])
def test_a_missing_library_of_the_trainers_kind_is_answered_with_where_to_get_it(is_in_worker: bool) -> None:
    missing: Exception = ModuleNotFoundError("No module named 'xgboost'", name="xgboost")
    if is_in_worker:
        missing = RayTaskError("on_start", "No module named 'xgboost'", missing).as_instanceof_cause()
    failure = classified(missing)
    assert (failure.kind, failure.message) == (
        CANNOT_START,
        f"ModuleNotFoundError: No module named 'xgboost'; {LIBRARY_ADVICE}",
    )


@pytest.mark.parametrize(("module", "is_of_package"), [("train", True), ("helpers", True), ("timm", False)])
def test_a_module_of_the_package_that_a_task_of_rays_misses_is_answered_with_how_to_send_it(
    tmp_path: Path, module: str, is_of_package: bool
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "helpers").mkdir()
    text = f"The remote function failed to import on the worker.\n\nNo module named '{module}.nets'"
    error = type("RayTaskError(RuntimeError)", (RuntimeError,), {"__module__": "ray.exceptions"})(text)
    failure = describe(error, rank=0, world_size=1, is_importing=False, folder=str(tmp_path))
    assert failure.message.endswith(TASK_ADVICE) is is_of_package


def test_a_worker_killed_for_memory_does_not_count_as_lost() -> None:
    killed = type("ActorDiedError", (Exception,), {})("1 worker(s) were killed due to the node running low on memory.")
    assert classified(killed).kind == "out_of_memory"
    assert classified(type(killed)("gone")).kind == "lost"
    assert classified(type(killed)("gone"), has_oom_kill=True).kind == "out_of_memory"


def test_a_missing_conda_environment_is_named_without_rays_source_line() -> None:
    last = "ValueError: The given conda environment 'x' doesn't exist"
    text = f"Traceback (most recent call last):\n  raise ValueError(\n{last}"
    message = classified(type("RuntimeEnvSetupError", (Exception,), {})(text)).message
    assert "raise" not in message
    assert message.endswith(last)


@pytest.mark.parametrize(
    ("why", "kind"), [("gone", LOST), ("killed: the node was running low on memory", OUT_OF_MEMORY)]
)
def test_the_death_of_a_process_of_the_datasets_is_not_the_users_error(why: str, kind: str) -> None:
    def described(actor_class: str) -> Failure:
        died = ActorDiedError()
        died.error_msg = f"The actor died unexpectedly.\n\tclass_name: {actor_class}\n\tactor_id: 1\n{why}"
        error = ValueError("no batch")
        error.__cause__ = died
        return describe(error, rank=0, world_size=2, is_importing=False, folder=None)

    assert described("SplitCoordinator").kind == described("DatasetServer").kind == kind
    assert described("OwnActor").kind == USER_ERROR


REFUSED = "RPC error: WrongClusterID: Perhaps the client is accessing GCS after it has restarted."


def rays(name: str, message: str, **facts: Any) -> Exception:
    """An error of this name, as Ray raises it: it is recognized by its name."""
    error: Exception = type(name, (Exception,), {})(message)
    vars(error).update(facts)
    return error


def test_a_restarted_ray_head_is_named_as_the_cause() -> None:
    refused = rays("AuthenticationError", f"{REFUSED} Ensure that the token for the cluster is available")
    wrapped = rays("ControllerError", "Training failed due to controller error", controller_failure=refused)
    for error in (refused, wrapped):
        failure = classified(error, has_oom_kill=True)
        assert (failure.kind, failure.message.partition(",")[0]) == ("lost", "the Ray head was restarted")
    assert describe(refused, rank=0, world_size=1, is_importing=True, folder=None).kind == "lost"


@pytest.mark.parametrize(
    "error",
    [
        ActorUnavailableError("RPC error: recvmsg:Connection reset by peer rpc_code: 14.", b"\0" * 16),
        LocalRayletDiedError(),
        NodeDiedError("the node has died"),
        RpcError("failed to connect"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_call_of_ray_that_the_network_cut_off_is_not_the_users_error(error: Exception) -> None:
    """As `ray.train.report()` raises it when the connection to the slot is reset."""

    def kind_of(error: Exception) -> str:
        return describe(error, rank=0, world_size=2, is_importing=False, folder=None).kind

    assert kind_of(error) == "lost"
    wrapped = RuntimeError("the epoch failed")
    wrapped.__cause__ = error
    assert kind_of(wrapped) == "lost"
    assert kind_of(rays(type(error).__name__, "an error of the user's own of this name")) == "user_error"


def test_a_storage_that_goes_away_before_rays_controller_starts_is_named(tmp_path: Path) -> None:
    """Ray reports it as the death of the controller, in whose constructor it looks at the storage."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="directory") as unusable:
        StorageContext(str(tmp_path / "file"), "run")
    told = "".join(traceback.format_exception(unusable.value))
    error = RayTaskError("TrainController.__init__", told, unusable.value, actor_id="0a1b")
    failure = classified(ActorDiedError(error))
    assert failure.kind == "lost"
    assert re.match(r"checkpoints cannot be stored at /storage: \w+Error: .*directory", failure.message)


@pytest.mark.parametrize("page", [b"<html></html>", b"", b'{"error": "sign in"}', b"\xff\xfe"])
def test_a_page_in_the_place_of_the_state_of_ray_train_is_a_loss_of_the_storage(tmp_path: Path, page: bytes) -> None:
    storage = StorageContext(str(tmp_path), "run")
    Path(storage.checkpoint_manager_snapshot_path).write_bytes(page)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of several types
        CheckpointManager(CheckpointConfig(), storage)
    failure = classified(rays("ControllerError", "failed", controller_failure=caught.value))
    assert failure.kind == "lost"
    assert failure.message.startswith("checkpoints cannot be stored at /storage: what Ray Train reads there is not its")


def test_a_process_without_a_free_descriptor_blames_no_storage(tmp_path: Path) -> None:
    os_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(tmp_path / "state"))
    of_ray = ' File "ray/train/v2/_internal/execution/storage.py", line 3'
    failure = classified(rays("ControllerError", of_ray, controller_failure=os_error))
    assert failure.kind == "lost"
    assert failure.message.startswith("the workers could not be set up: OSError: [Errno 24] Too many open files")
    assert "reached its limit of open files" in failure.message
    read = not_read("/storage/checkpoint", os_error)
    failure = describe(read, rank=0, world_size=1, is_importing=False, folder=None, resume="/storage/checkpoint")
    assert failure.kind == "user_error"
    assert "the process has reached its limit of open files (" in failure.message


def test_an_os_error_that_is_not_of_the_storage_does_not_blame_it() -> None:
    failure = classified(OSError("libcublas.so.12: cannot open shared object file: No such file or directory"))
    assert failure.message.startswith("the workers could not be set up: OSError: libcublas.so.12")


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("The server socket has failed to listen on any local network address: EADDRINUSE", LOST),
        ("recvValue failed on SocketImpl(fd=70): Connection reset by peer", LOST),
        ("The client socket has timed out after 1800000ms while trying to connect to (10.0.0.7, 4711).", CANNOT_START),
    ],
    ids=["port", "reset", "firewall"],
)
def test_ranks_that_cannot_connect_are_a_loss_unless_they_never_can(why: str, kind: str) -> None:
    error = type("DistNetworkError", (RuntimeError,), {})(why)  # torch's, whose import takes seconds
    failure = classified(RayTaskError("call_in_order", f"Traceback\n{why}", error, actor_id="0a1b"))
    assert failure.kind == kind
    assert f"DistNetworkError: {why}" in failure.message


@pytest.mark.parametrize("uri_of", [str, Path.as_uri])
def test_a_checkpoint_whose_storage_is_away_is_not_the_users_error(
    tmp_path: Path, uri_of: Callable[[Path], str]
) -> None:
    """On a file system the user's code opens the checkpoint's files itself."""

    def kind_of_reading(checkpoint: Path, file: str | Path) -> str:
        return kind_of_missing(checkpoint / file, uri_of(checkpoint))

    root = tmp_path / "with a space"
    root.mkdir()
    assert kind_of_reading(root / "away" / "checkpoint", "state.pt") == "lost"
    (root / "file").touch()
    assert kind_of_reading(root / "file" / "checkpoint", "state.pt") == "lost", "not a directory"
    (root / "checkpoint").mkdir()
    assert kind_of_reading(root / "checkpoint", "misspelled.pt") == "user_error"
    assert kind_of_reading(root / "away" / "checkpoint", root / "data.csv") == "user_error", "another file"


FULL_STORES = [OutOfDiskError("00ff", "owner", "call site"), ObjectStoreFullError("Failed to put object")]


@pytest.mark.parametrize("error", FULL_STORES, ids=lambda error: type(error).__name__)
def test_a_full_object_store_is_told_with_what_to_do(error: Exception) -> None:
    """Ray says only the number of an object that could not be read."""
    failure = describe(error, rank=0, world_size=1, is_importing=False, folder=None)
    assert failure.kind == "user_error", "the function may have filled it itself"
    assert failure.message.startswith(f"{type(error).__name__}: the object store of a node is full, and so is ")
    assert "--object-store-memory" in failure.message
    of_task = RayTaskError("f", "its traceback", error).as_instanceof_cause()
    assert describe(of_task, rank=0, world_size=1, is_importing=False, folder=None).message == failure.message


@pytest.mark.parametrize("error", FULL_STORES, ids=lambda error: type(error).__name__)
def test_an_object_store_in_which_ray_train_finds_no_room_is_a_loss(error: Exception) -> None:
    failure = classified(rays("ControllerError", "failed", controller_failure=error))
    assert failure.kind == "lost"
    assert failure.message.startswith(f"Ray failed: {type(error).__name__}: the object store of a node is full, ")


def kind_of_missing(file: Path, resume: str) -> str:
    try:
        file.read_text()
    except OSError as error:
        return describe(error, rank=0, world_size=1, is_importing=False, folder=None, resume=resume).kind
    return "none"


@pytest.mark.parametrize("name", ["RpcError", "NodeDiedError", "LocalRayletDiedError", "ActorUnavailableError"])
def test_a_failure_inside_ray_is_a_loss_with_its_cause(name: str) -> None:
    failure = classified(rays("ControllerError", "failed", controller_failure=rays(name, "no answer from the head")))
    assert (failure.kind, failure.message) == ("lost", f"Ray failed: {name}: no answer from the head")


def classified(error: BaseException, *, workers: str = "", has_oom_kill: bool = False) -> Failure:
    return classify(error, workers=workers, storage="/storage", has_oom_kill=has_oom_kill)


@pytest.mark.parametrize("name", ["WorkerGroupStartupTimeoutError", "ResourcesTimeout"])
def test_a_worker_group_that_gets_no_resources_is_not_a_loss(name: str) -> None:
    failure = classified(type(name, (Exception,), {})("too slow"), workers="2 workers x 1 GPU")
    assert failure.kind == "preempted"
    assert failure.message.startswith("the resources of 2 workers x 1 GPU did not become free")


def test_the_room_that_is_missing_is_that_of_the_ranks_that_save() -> None:
    ranks = Ranks(8)
    assert ranks.bytes_without_room is None
    ranks.add_background_failure(0, Failure(LOST, "no room", bytes_without_room=5))
    ranks.add_background_failure(1, Failure(LOST, "the other has failed"))
    assert ranks.bytes_without_room == 5
    ranks.add_background_failure(2, Failure(LOST, "no room", bytes_without_room=7))
    assert ranks.bytes_without_room == 12


@pytest.mark.parametrize(("code", "known"), [(errno.ENOSPC, 5), (errno.EDQUOT, 5), (errno.EACCES, None)])
def test_a_checkpoint_without_room_tells_its_size(code: int, known: int | None) -> None:
    error = not_saved("/checkpoints", OSError(code, "refused"), {"a": 2, "b": 3})
    failure = describe(error, rank=0, world_size=1, is_importing=False, folder=None)
    assert (failure.kind, failure.bytes_without_room) == (LOST, known)


@pytest.mark.parametrize(
    ("error", "resume", "is_missing"),
    [
        (not_read("/c/1", FileNotFoundError("none")), "/c/1", True),
        (not_read("/c/1", OSError("the bucket is away")), "/c/1", False),
        (not_read("/c/1", FileNotFoundError("none")), None, False),
        (FileNotFoundError(errno.ENOENT, "none", "/c/1/state"), "/c/1", True),
        (FileNotFoundError(errno.ENOENT, "none", "/c/2/state"), "/c/1", False),
        (PermissionError(errno.EACCES, "no", "/c/1/state"), "/c/1", False),
    ],
)
def test_only_the_missing_checkpoint_that_the_attempt_resumes_from_is_told(
    error: OSError, resume: str | None, is_missing: bool
) -> None:
    failure = describe(error, rank=0, world_size=1, is_importing=False, folder=None, resume=resume)
    assert failure.is_checkpoint_missing is is_missing
    sent = to_json(failure, began=True)
    assert wire.Failure.model_validate(sent).is_checkpoint_missing is is_missing
    assert ("is_checkpoint_missing" in sent) is is_missing, "earlier services refuse the field"
