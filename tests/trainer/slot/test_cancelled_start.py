"""A cancel at any moment of the start of workers."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import until
from tests.trainer.fake_service import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class Starts:
    """An actor that starts workers by the runner of a slot, and ends them all the time while they start."""

    def __init__(self, storage: str) -> None:
        from trainer.ray_train.runners import WarmRunner  # noqa: PLC0415 - heavy

        self._storage = storage
        self._runner = WarmRunner(lambda *_: None)

    def ended_while_starting(self) -> str:
        """What the run raised."""
        from trainer.ray_train.runners import RunPlan  # noqa: PLC0415 - heavy

        starts, is_over = threading.Event(), threading.Event()

        def end() -> None:
            starts.wait()
            while not is_over.wait(0.001):
                self._runner.end_workers()

        plan = RunPlan(
            "torch",
            {"num_workers": 2},
            {},
            "run",
            self._storage,
            is_cancelled=lambda: False,
            on_success=lambda: None,
            on_start=lambda _workers: starts.set(),
        )
        other = threading.Thread(target=end)
        other.start()
        try:
            return type(self._runner.fit(lambda: None, plan)).__name__
        finally:
            starts.set()
            is_over.set()
            other.join()


def test_workers_that_are_ended_while_ray_registers_them_do_not_start_without_end(
    reserved: Callable[[], set[str]], tmp_path: Path
) -> None:
    import ray  # noqa: PLC0415 - heavy

    actor: Any = ray.remote(Starts).options(num_cpus=0).remote(str(tmp_path))
    for _ in range(5):
        assert ray.get(actor.ended_while_starting.remote(), timeout=PATIENCE_SECONDS) == "ControllerError"
    until(lambda: not reserved(), "nothing is reserved")
    ray.kill(actor)
