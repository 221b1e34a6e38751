"""A cost in words, for terminals and MLflow. Pure, and without imports, because the command line needs it."""

from collections.abc import Mapping

SHOWN_SHARE = 0.005
NOT_HELD = {"waiting_seconds", "worker_seconds", "gpu_seconds"}
SECONDS_PER_HOUR = 3600.0
UNITS = (("hours", SECONDS_PER_HOUR), ("minutes", 60.0), ("seconds", 1.0))


def summary(cost: Mapping[str, float | None], max_gpu_hours: float | None = None) -> str:
    """`12.5 worker-hours, 6.25 GPU-hours: training 81 %, starting 12 %, idle 7 %`, from the fields of a `Cost`.

    With a limit: `6.25 of 10 GPU-hours`.
    """
    known = {name: seconds for name, seconds in cost.items() if seconds}
    phases = {name.removesuffix("_seconds"): seconds for name, seconds in known.items() if name not in NOT_HELD}
    held = held_seconds(cost)
    parts = sorted(((seconds / held, name) for name, seconds in phases.items()), reverse=True)
    shares = ", ".join(f"{name} {100 * share:.0f} %" for share, name in parts if share >= SHOWN_SHARE)
    amounts = [_amount("worker", known.get("worker_seconds", 0.0))]
    gpu_seconds = known.get("gpu_seconds", 0.0)
    if max_gpu_hours is not None:
        amounts.append(f"{gpu_seconds / SECONDS_PER_HOUR:.3g} of {max_gpu_hours:g} GPU-hours")
    elif gpu_seconds:
        amounts.append(_amount("GPU", gpu_seconds))
    return ": ".join(filter(None, [", ".join(amounts), shares]))


def held_seconds(cost: Mapping[str, float | None]) -> float:
    """From the claim to the end, of all attempts together."""
    return sum(seconds for name, seconds in cost.items() if seconds and name not in NOT_HELD)


def _amount(what: str, seconds: float) -> str:
    unit, size = next((one for one in UNITS if seconds >= 2 * one[1]), UNITS[-1])
    return f"{seconds / size:.3g} {what}-{unit}"
