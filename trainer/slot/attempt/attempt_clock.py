"""When an attempt was created, began to train, and had no more workers that train; and its seconds by phase."""

import time
from collections.abc import Iterable, Mapping

from trainer.phase_times import RUNNING, WAITS
from trainer.slot.attempt.ranks import Ranks
from trainer.traces import tracing


class AttemptClock:
    """Set by the slot's event loop, and at the end by its thread. May be read from any thread."""

    def __init__(self) -> None:
        self._created_at = time.monotonic()
        self._began_at: float | None = None
        self._workers_done_at: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a rank has called the training function."""
        return self._began_at is not None

    @property
    def running_seconds(self) -> float | None:
        """Since the first rank called the training function; None before."""
        return None if self._began_at is None else time.monotonic() - self._began_at

    def begin(self) -> bool:
        """A rank is about to call the training function. Returns whether it is the first."""
        if self._began_at is not None:
            return False
        self._began_at = time.monotonic()
        return True

    def end_of_workers(self, world_size: int) -> None:
        """No worker trains any more. Adds the spans of the start and of the training to the trace."""
        self._workers_done_at = ended = time.monotonic()
        began = self._began_at or ended
        tracing.add_span("start workers", self._created_at, began, workers=world_size)
        if self._began_at is not None:
            tracing.add_span("train", began, ended)

    def phases(self, ranks: Ranks) -> dict[str, float]:
        """As `phase_seconds`; empty before the training has begun."""
        if self._began_at is None:
            return {}
        now, times = time.monotonic(), dict(ranks.times)
        ran = min(now, self._workers_done_at or now) - self._began_at
        return phase_seconds(now - self._began_at, max(0.0, ran), times.values(), ranks.world_size)


def phase_seconds(
    since_began: float, function_seconds: float, ranks: Iterable[Mapping[str, float]], world_size: int
) -> dict[str, float]:
    """As `trainer.wire.PhaseSeconds`: the means over all ranks. Together they are `since_began`.

    `since_began`: the seconds since the first rank called the training function. `function_seconds`: for how long the
    function of a rank ran that has not told its end. `ranks` has the fields of `PhaseTimes` of the ranks that have told
    any.
    """
    told = list(ranks)
    silent = world_size - len(told)
    waits = {phase: sum(one.get(phase, 0.0) for one in told) / world_size for phase in WAITS}
    ran = sum(one.get(RUNNING, function_seconds) for one in told) + silent * function_seconds
    running = min(ran / world_size, since_began)
    training = max(0.0, running - sum(waits.values()))
    return {**waits, "training": training, "idle": since_began - running}
