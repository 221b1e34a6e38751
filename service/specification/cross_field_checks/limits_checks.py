"""What the limits require of each other, of the trainer and of the objectives."""

import math
from collections.abc import Iterator

from search.mistakes import Mistake
from service.specification.spec_sections import LimitsSpec
from trainer.wire import Trainer


def mistakes_in_limits(limits: LimitsSpec, trainer: Trainer, *, objective_count: int) -> Iterator[Mistake]:
    if (limits.kill_trial_after_seconds or math.inf) <= (limits.max_trial_seconds or 0):
        yield Mistake(
            ("limits", "kill_trial_after_seconds"),
            f"must be more than max_trial_seconds ({limits.max_trial_seconds:g}), after which a trial leaves "
            "by itself at a report",
        )
    if limits.max_gpu_hours is not None and not trainer.group.worker.get("GPU"):
        yield Mistake(
            ("limits", "max_gpu_hours"),
            "counts the GPUs that trials reserve, and these reserve none: set trainer.scaling.use_gpu, or leave it out",
        )
    if limits.no_improvement and objective_count > 1:
        yield Mistake(("limits", "no_improvement"), "works with one objective only; leave it out")
