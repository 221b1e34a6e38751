"""The sections of a specification, except the trainer, the space, the search and early stopping."""

from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from search.json_types import JsonModel
from search.problem import Direction


class SpecSection(JsonModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Objective(SpecSection):
    """A metric to optimize."""

    metric: str = Field(min_length=1)
    """the reported metric"""
    direction: Direction
    """whether larger or smaller values are better"""
    target: float | None = Field(default=None, allow_inf_nan=False)
    """a trial that reaches this value ends the experiment"""
    report: Literal["newest", "best"] | None = None
    """which of its reports gives a trial its value, `newest` or `best`; absent: newest. With `best`, the trial keeps
    the checkpoint of that report, too. For one objective without constraints, and not with pbt"""

    @field_validator("report")
    @classmethod
    def _newest_is_the_default(cls, report: str | None) -> str | None:
        """Services before this field read a stored specification only if it has no value."""
        return None if report == "newest" else report

    @property
    def takes_best(self) -> bool:
        return self.report == "best"

    def is_reached_by(self, value: float) -> bool:
        if self.target is None:
            return False
        return value >= self.target if self.direction == "maximize" else value <= self.target


class NoImprovementSpec(SpecSection):
    """Ends the experiment when its last `trials` finished trials do not beat the earlier best by `min_delta`."""

    trials: PositiveInt
    """how many trials in a row may fail to improve"""
    min_delta: NonNegativeFloat = Field(default=0.0, allow_inf_nan=False)
    """the least difference that counts as an improvement"""


class LimitsSpec(SpecSection):
    """When the experiment ends, and how much runs at a time."""

    max_trials: PositiveInt | None = 100
    """the number of trials; null is no limit, if something else ends the experiment"""
    parallelism: PositiveInt = 1
    """how many trials run at the same time"""
    max_seconds: PositiveFloat | None = None
    """the experiment ends after this time"""
    max_gpu_hours: PositiveFloat | None = None
    """the experiment ends when its trials have held GPUs for so many hours, all together"""
    max_trial_seconds: PositiveFloat | None = None
    """a trial leaves at its first report after this time, counted from the first line of its function"""
    kill_trial_after_seconds: PositiveFloat | None = None
    """a trial's workers are killed after this time, counted in the same way"""
    stop_grace_seconds: PositiveFloat | None = None
    """how long a trial that is to stop may take to reach its next report and leave, before its workers are killed;
    absent: 30"""
    no_improvement: NoImprovementSpec | None = None
    """end when trials no longer improve"""


class FailuresSpec(SpecSection):
    """What happens when trials fail."""

    max_retries: NonNegativeInt = 0
    """how often a trial is retried after an error of the training function"""
    max_failed_trials: NonNegativeInt | None = None
    """the experiment fails when more trials than this have failed"""
    report_timeout_seconds: PositiveFloat | None = None
    """a trial fails when it reports nothing for this time"""


SEED = "seed"
"""With `confirm`, the field of `config` that has the trial's seed."""


class ConfirmSpec(SpecSection):
    """Runs the best configurations of the search again with other seeds: the best of many noisy values is lucky."""

    top: Annotated[int, Field(ge=1, le=20)] = 3
    """how many of the best configurations are run again"""
    seeds: Annotated[int, Field(ge=2, le=50)] = 3
    """how often each of them is run again, each time with another seed"""

    @property
    def trial_count(self) -> int:
        """How many confirmations there are. So many of `limits.max_trials` are kept for them."""
        return self.top * self.seeds


class CheckpointsSpec(SpecSection):
    """Which checkpoints are kept."""

    keep: PositiveInt = 1
    """how many of a trial's newest checkpoints are kept"""
    keep_best_trials: PositiveInt | None = None
    """an ended trial keeps its checkpoints only if it is among the best so many; absent: all trials keep theirs"""
    keep_last: bool = True
    """with keep_best_trials: failed and stopped trials keep their newest checkpoint after the experiment's end, too, so
    that they can be retried should it be reopened"""
    metric: str | None = None
    """with keep_best_trials: the objective that ranks the trials; absent: the first one, and with several objectives
    the trials on the Pareto front keep theirs, too"""
