"""A thread that samples the load of a worker's node and its GPUs for as long as an attempt lasts."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator

import ray

from trainer.worker.system_metrics.node_load import NodeLoad
from trainer.worker.system_metrics.nvidia_smi import Gpu, NvidiaSmi

END_SECONDS = 1.0
"""How long an attempt waits for the end of the thread, which is immediate unless the kernel holds it."""

SendSample = Callable[[dict[str, float], list[Gpu]], None]
"""Gets the load of the node, and its GPUs."""

logger = logging.getLogger("paceline")


class LoadThread(threading.Thread):
    """Sends a sample every `seconds` until `finish()`. An error ends it, and disturbs nothing else."""

    def __init__(self, seconds: float, send: SendSample, *, has_gpus: bool) -> None:
        super().__init__(name="paceline-system-metrics", daemon=True)
        self._seconds = seconds
        self._send = send
        self._nvidia_smi = NvidiaSmi() if has_gpus else None
        self._finished = threading.Event()

    def run(self) -> None:
        try:
            load = NodeLoad()
            while not self._finished.wait(self._seconds):
                gpus = self._nvidia_smi.gpus() if self._nvidia_smi is not None else []
                if not self._finished.is_set():
                    self._send(load.sample(), gpus)
        except Exception as error:  # noqa: BLE001 - the trial is more important than its metrics
            logger.warning("the node's load is not sampled any more: %r", error)

    def finish(self) -> None:
        self._finished.set()
        if self._nvidia_smi is not None:
            self._nvidia_smi.stop()
        self.join(END_SECONDS)


@contextlib.contextmanager
def sampling(seconds: float | None, send: SendSample, *, has_gpus: bool) -> Iterator[None]:
    """Sample every `seconds` in this context; None: never."""
    if seconds is None:
        yield
        return
    thread = LoadThread(seconds, send, has_gpus=has_gpus)
    thread.start()
    try:
        yield
    finally:
        thread.finish()


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them: by index or by UUID."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(one) for one in ray.get_runtime_context().get_accelerator_ids().get("GPU", ())]
    return [one.strip() for one in named.split(",") if one.strip()]
