"""Messages of workers to their slot that come again because the connection broke."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.trainer.conftest import set_constant

pytestmark = [pytest.mark.ray, pytest.mark.slow]

REPEATED = {
    "all_gather",
    "checkpoint_saved",
    "controller_started",
    "function_began",
    "get_all_reported_checkpoints",
    "log",
    "oom_kills_seen",
    "report",
    "secrets",
    "until_closed",
    "unused_checkpoint_name",
    "validated",
    "validation_began",
    "withhold",
    "worker_ended",
    "worker_failed",
    "worker_started",
}


def repeated_of(actor_class: type) -> set[str]:
    methods = {name: getattr(actor_class, name) for name in dir(actor_class) if not name.startswith("__")}
    return {name for name, one in methods.items() if getattr(one, "__ray_max_task_retries__", 0) == -1}


def test_ray_repeats_the_messages_whose_repetition_changes_nothing() -> None:
    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    assert repeated_of(Slot) == REPEATED


def test_ray_repeats_the_calls_by_which_workers_get_their_datasets() -> None:
    from trainer.worker.datasets.dataset_server import DatasetServer, DatasetStore  # noqa: PLC0415 - heavy

    assert repeated_of(DatasetServer) == {"process", "shard"}
    assert repeated_of(DatasetStore) == {"datasets", "join"}


def test_a_late_message_of_an_earlier_attempt_does_not_reach_the_running_one() -> None:
    from trainer.slot.worker_message_handlers import WorkerMessageHandlers  # noqa: PLC0415 - heavy

    attempt = SimpleNamespace(run_name="run-2")  # it has nothing that could be called
    handlers = WorkerMessageHandlers(SimpleNamespace(attempt=attempt))  # type: ignore[arg-type]

    async def send() -> None:
        await handlers.worker_failed("run-1", 0, {})
        await handlers.worker_ended("run-1", 0, {})
        await handlers.oom_kills_seen("run-1", 0, 1)
        assert await handlers.validation_began("run-1", "start", {}) == 0

    asyncio.run(send())


def test_a_worker_whose_start_is_told_twice_counts_once() -> None:
    from trainer.ray_train.runners import FreshRunner  # noqa: PLC0415 - heavy

    called = list[str]()
    worker = SimpleNamespace(execute=SimpleNamespace(remote=lambda _function: called.append("worker")))
    runner = FreshRunner(slot=None)
    for _ in range(2):
        runner.worker_started(worker)
    runner.call_in_workers(list)
    assert called == ["worker"]


def test_a_start_that_is_told_again_after_the_run_does_not_count_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.ray_train.runners import FreshRunner  # noqa: PLC0415 - heavy

    killed = list[object]()
    runner = FreshRunner(slot=None)

    def starting(*_: object) -> None:
        runner.end_workers()
        raise OSError

    monkeypatch.setattr("ray.kill", killed.append)
    set_constant(monkeypatch, FreshRunner.end_workers, "remove_groups_of", killed.append)
    set_constant(monkeypatch, FreshRunner.fit, "StorageContext", starting)
    for tell in (runner.worker_started, runner.controller_started):
        tell("dead")
        assert isinstance(runner.fit(list, SimpleNamespace(storage_path="/s", name="run")), OSError)  # type: ignore[arg-type]
    assert killed == []
