"""The samples of an attempt's nodes that the service has not confirmed yet."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEND_SECONDS = 60.0
"""How long a sample waits for others: the service stores those of one call together."""

ENOUGH = 100
"""When so many samples wait, they are sent."""

MOST = 300
"""While the service is away, the oldest samples above this number are dropped."""


@dataclass(frozen=True)
class Sample:
    """`node`: its number among those of the attempt; None if there is only one."""

    sequence: int
    at: float
    node: int | None
    metrics: Mapping[str, float]


class SystemSamples:
    """Workers add samples, the heartbeat and the end of the attempt send them. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Sample] = deque(maxlen=MOST)
        self._count = 0

    def add(self, node: int | None, metrics: Mapping[str, float]) -> None:
        with self._lock:
            self._waiting.append(Sample(self._count, self._clock(), node, metrics))
            self._count += 1

    def due(self) -> list[dict[str, Any]]:
        """The samples to send with a heartbeat, as `trainer.wire.SystemSample`. They stay until they are confirmed."""
        with self._lock:
            oldest = self._waiting[0].at if self._waiting else self._clock()
            is_due = self._clock() - oldest >= SEND_SECONDS or len(self._waiting) >= ENOUGH
        return self.all() if is_due else []

    def all(self) -> list[dict[str, Any]]:
        with self._lock:
            waiting, now = list(self._waiting), self._clock()
        return [_as_json(sample, now) for sample in waiting]

    def confirm(self, sent: Sequence[Mapping[str, Any]]) -> None:
        """The service has these."""
        last = max((sample["sequence"] for sample in sent), default=-1)
        with self._lock:
            while self._waiting and self._waiting[0].sequence <= last:
                self._waiting.popleft()


def gpu_metrics(gpus: Sequence[Mapping[str, Any]], visible: Collection[str]) -> dict[str, float]:
    """The metrics of the GPUs that `visible` names, numbered from 0 in the order of their indices.

    A name is an index, or a UUID or its beginning. Parts of a GPU (MIG) are left out: `nvidia-smi` measures whole ones.
    """
    own = [gpu for gpu in gpus if any(_is_named(gpu, name) for name in visible)]
    return {
        f"gpu_{number}_{metric}": value for number, gpu in enumerate(own) for metric, value in gpu["metrics"].items()
    }


def _is_named(gpu: Mapping[str, Any], name: str) -> bool:
    return name == gpu["index"] or (name.startswith("GPU-") and str(gpu["uuid"]).startswith(name))


def _as_json(sample: Sample, now: float) -> dict[str, Any]:
    node = {} if sample.node is None else {"node": sample.node}
    age = max(0.0, now - sample.at)
    return {"sequence": sample.sequence, "age_seconds": age, **node, "metrics": dict(sample.metrics)}
