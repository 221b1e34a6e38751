"""What a process beside the ranks prints while it runs the user's code, sent to the slot as output of one more rank."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray

from trainer.worker.logs.log_follower import LogFollower
from trainer.worker.logs.masker import Masker


@contextlib.contextmanager
def sending_output(slot: Any, run: str, rank: int, masker: Masker, *, offset: int = 0) -> Iterator[None]:
    """Send what this process prints meanwhile, without secrets. `offset`: how much of this rank was sent before."""

    def send(sent: int, text: str, positions: dict[str, int]) -> Callable[[], None]:
        accepted = slot.log.remote(run, rank, offset + sent, text, positions)

        def wait_for_room() -> None:
            with contextlib.suppress(ray.exceptions.RayError):  # the slot has died
                ray.get(accepted)

        return wait_for_room

    logs = LogFollower(send, masker)
    logs.start()
    try:
        yield
    finally:
        logs.finish()
