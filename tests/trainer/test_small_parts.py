"""The parts that need no Ray: metrics, packages, failures, resources."""

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.resources import gang, place
from trainer.text import storable
from trainer.wire import Failure, Scaling
from trainer.worker.failures import as_sent, classify, describe
from trainer.worker.logs import Stream
from trainer.worker.metrics import plain
from trainer.worker.user_code import BadEntrypoint, call, find_function, unpack


def test_numbers_without_a_json_form_become_words_and_the_rest_is_dropped_by_name() -> None:
    values, dropped = plain(
        {"a": np.float64("nan"), "b": float("-inf"), "c": np.int32(2), "d": object(), "e": [1, {"f": 2}]}
    )
    assert values == {"a": "NaN", "b": "-Infinity", "c": 2, "e": [1, {"f": 2}]}
    assert dropped == ["d"]


def test_metrics_hold_no_text_that_a_database_cannot_keep() -> None:
    values, _ = plain({"\ud800": "a\0b", "nested": [{"c": "\udcff"}]})
    assert values == {"?": "a\ufffdb", "nested": [{"c": "?"}]}


def test_a_long_text_keeps_its_head_and_its_tail() -> None:
    cut = storable("head" + 5_000 * "x" + "tail", 200)
    assert len(cut) <= 200
    assert cut.startswith("head")
    assert cut.endswith("tail")
    assert "characters left out" in cut


@pytest.mark.parametrize("ranks", [1, 64])
def test_a_failure_is_sent_in_texts_that_the_service_can_keep(ranks: int) -> None:
    traceback = "Traceback\0" + 300_000 * "\udce9"
    told = as_sent(
        {
            "kind": "user_error",
            "message": "no file \udce9\0" + 5_000 * "x",
            "traceback": traceback,
            "ranks": [{"rank": rank, "traceback": traceback} for rank in range(ranks)],
        }
    )
    failure = Failure.model_validate(told)
    assert failure.message.startswith("no file ?\ufffd")
    assert len(failure.message) <= 2_000
    assert max(len(text) for text in (failure.traceback or "", *(r.traceback for r in failure.ranks))) <= 100_000
    assert len(failure.model_dump_json()) < 1_000_000


def test_what_is_read_of_a_log_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "worker.out"
    path.touch()
    stream = Stream(str(path))
    path.write_bytes(b"a\0b\xff\n")
    assert stream.read() == "a\ufffdb\ufffd\n"
    stream.close()


@pytest.fixture(autouse=True)
def path_as_before() -> object:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def a_zip(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return content.getvalue()


def test_a_function_is_found_in_a_module_of_a_package_in_a_zip(tmp_path: Path) -> None:
    content = a_zip(
        deep____init__="", deep__er="from deep import other\ndef go(config): other.seen = config", deep__other=""
    )
    folder = unpack(content, "package.zip", tmp_path / "code")
    call(find_function("deep.er:go", folder), {"lr": 1})
    assert sys.modules["deep.other"].seen == {"lr": 1}


def test_a_module_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    folder = unpack(b"x = 1", "train.py", tmp_path / "code")
    with pytest.raises(BadEntrypoint, match=r"no module 'main_of_mine'; it has: train\.py"):
        find_function("main_of_mine:go", folder)


def test_a_missing_library_is_not_taken_for_a_missing_module(tmp_path: Path) -> None:
    folder = unpack(b"import not_installed_here", "needs_it.py", tmp_path / "code")
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        find_function("needs_it:go", folder)


def test_a_function_of_two_arguments_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(BadEntrypoint, match="takes one, the configuration, or none"):
        call(divmod, {})


def test_a_failure_says_rank_and_place_and_hides_our_own_frames(tmp_path: Path) -> None:
    folder = unpack(b"def go():\n    raise KeyError('lr')\n", "fails.py", tmp_path / "code")
    try:
        call(find_function("fails:go", folder), {})
    except KeyError as error:
        told = describe(error, rank=1, world_size=2, importing=False, folder=str(folder))
    assert told["message"] == "KeyError: 'lr' (rank 1 of 2, fails.py:2)"
    assert "package.py" not in told["traceback"]


def test_a_worker_killed_for_memory_is_not_taken_for_a_lost_one() -> None:
    killed = type("ActorDiedError", (Exception,), {})("1 worker(s) were killed due to the node running low on memory.")
    assert told_of(killed)["kind"] == "out_of_memory"
    assert told_of(type(killed)("gone"))["kind"] == "lost"
    assert told_of(type(killed)("gone"), kernel_killed=True)["kind"] == "out_of_memory"


REFUSED = "RPC error: WrongClusterID: Perhaps the client is accessing GCS after it has restarted."


def rays(name: str, message: str, **facts: Any) -> Exception:
    """An error of this name, as Ray raises it: it is known by its name, so that no Ray is needed to name it."""
    error: Exception = type(name, (Exception,), {})(message)
    vars(error).update(facts)
    return error


def test_a_ray_head_that_was_started_anew_is_named_and_no_bad_code_nor_a_dead_worker() -> None:
    refused = rays("AuthenticationError", f"{REFUSED} Ensure that the token for the cluster is available")
    wrapped = rays("ControllerError", "Training failed due to controller error", controller_failure=refused)
    for error in (refused, wrapped):
        told = told_of(error, kernel_killed=True)
        assert (told["kind"], told["message"].partition(",")[0]) == ("lost", "the Ray head was started anew")
    in_a_worker = describe(refused, rank=0, world_size=1, importing=True, folder=None)
    assert in_a_worker["kind"] == "lost"


@pytest.mark.parametrize("name", ["RpcError", "NodeDiedError", "LocalRayletDiedError", "ActorUnavailableError"])
def test_a_failure_of_rays_own_is_a_loss_and_says_what_failed(name: str) -> None:
    told = told_of(rays("ControllerError", "failed", controller_failure=rays(name, "no answer from the head")))
    assert (told["kind"], told["message"]) == ("lost", f"Ray failed: {name}: no answer from the head")


def told_of(error: BaseException, *, wanted: str = "", kernel_killed: bool = False) -> dict[str, Any]:
    return classify(error, wanted=wanted, storage="/storage", kernel_killed=kernel_killed)


@pytest.mark.parametrize("name", ["WorkerGroupStartupTimeoutError", "GangNotFormed"])
def test_a_gang_that_finds_no_room_is_no_loss(name: str) -> None:
    told = told_of(type(name, (Exception,), {})("too slow"), wanted="2 workers x 1 GPU")
    assert told["kind"] == "preempted"
    assert told["message"].startswith("2 workers x 1 GPU did not come free")


def test_a_gang_fits_only_where_every_worker_finds_room() -> None:
    two_gpus = gang({"num_workers": 2, "use_gpu": True, "resources_per_worker": {"CPU": 1}})
    assert two_gpus == [{"CPU": 1, "GPU": 1}] * 2
    nodes = {"a": {"CPU": 1.0, "GPU": 4.0}, "b": {"CPU": 8.0, "GPU": 1.0}}
    placed = place(two_gpus, nodes)
    assert placed is not None
    assert sorted(placed.nodes) == ["a", "b"]
    assert placed.left == {"a": {"CPU": 0.0, "GPU": 3.0}, "b": {"CPU": 7.0, "GPU": 0.0}}
    assert place(two_gpus, {"a": {"CPU": 1.0, "GPU": 4.0}}) is None


def test_a_gang_takes_what_the_wire_and_ray_train_say() -> None:
    given = {"resources_per_worker": {"CPU": 2}}
    for scaling in ({}, {"use_gpu": True}, given, {**given, "use_gpu": True}):
        wire = Scaling.model_validate(scaling)
        assert gang(wire.model_dump()) == [wire.worker]
