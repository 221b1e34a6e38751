"""Messages of workers to their slot that come again because the connection broke."""

from types import SimpleNamespace

import pytest

from tests.trainer.conftest import set_constant

pytestmark = [pytest.mark.ray, pytest.mark.slow]


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
