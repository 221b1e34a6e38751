"""The seconds of an attempt by phase, from what its ranks have told. Pure."""

from collections.abc import Iterable, Mapping

from trainer.phase_times import RUNNING, WAITS


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
