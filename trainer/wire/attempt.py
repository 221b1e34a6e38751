"""What a slot, or an external worker, tells of an attempt while it runs and when it ends, and the answers."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from trainer import decisions
from trainer.wire.assignment import Assignment
from trainer.wire.field_types import (
    Bool,
    Count,
    JsonNumber,
    Message,
    Rank,
    ReadableText,
    Seconds,
    SystemMetric,
    SystemValue,
    Text,
    WorldSize,
)

PhaseTime = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False), JsonNumber]


class PhaseSeconds(Message):
    """The seconds of an attempt since the training function's first line, by phase: the means over its workers.

    Together they are the time since then. All are 0 before it.
    """

    data: PhaseTime = 0
    """waiting for datasets of Ray Data, and for their batches"""
    training: PhaseTime = 0
    """everything else that the training function does"""
    checkpointing: PhaseTime = 0
    """in reports that save a checkpoint, until it is saved"""
    reporting: PhaseTime = 0
    """in reports, waiting for the other workers and for the service's decision"""
    idle: PhaseTime = 0
    """after a worker's training function has ended"""

    @property
    def total(self) -> float:
        return self.data + self.training + self.checkpointing + self.reporting + self.idle


class SystemSample(Message):
    """The load of one node at one moment, under the names that MLflow has for it.

    The same sample may be sent again: its `sequence` tells it from others.
    """

    sequence: Count
    """counts the attempt's samples from 0"""
    age_seconds: PhaseTime
    """for how long it has waited for this call"""
    node: Count | None = None
    """the node among those of the attempt, from 0; absent if there is only one"""
    metrics: dict[SystemMetric, SystemValue] = Field(max_length=500, json_schema_extra={"additionalProperties": False})
    """such as `cpu_utilization_percentage` and `gpu_0_memory_usage_megabytes`"""


SystemSamples = Annotated[list[SystemSample], Field(max_length=1000)]


class Heartbeat(Message):
    """Extends the lease. The service answers immediately if there is something to do, else after `wait_seconds`.

    The lease of a holder that knows only one address is kept while the service there is away, although others answer.
    """

    wait_seconds: Seconds = 0
    """how long to wait for a request to stop"""
    running_seconds: PhaseTime | None = None
    """for how long the training function has run; absent before its first line"""
    phases: PhaseSeconds | None = None
    """the seconds so far, by phase"""
    world_size: WorldSize | None = None
    """how many workers an elastic group has; absent before they start"""
    system_metrics: SystemSamples = Field(default_factory=list)
    """samples that the service has not confirmed yet, in the order of their sequence"""
    is_ending: Bool = False
    """no worker trains any more, and the holder finds out how the attempt has ended: until its end, also while reports
    are still delivered, `report_timeout_seconds` counts as ten minutes longer"""
    has_alternatives: Bool = False
    """the holder knows further addresses of the service"""


class Report(Message):
    """One call of `ray.train.report()`. `sequence` counts an attempt's reports from 0.

    `step` may be left out: the service takes it from the experiment's `step_metric`, or counts. The same report may be
    sent again with a checkpoint: the service then adds the checkpoint and changes nothing else.
    """

    sequence: Count
    """counts the attempt's reports from 0"""
    step: Count | None = None
    """the position on the curve; absent: from `step_metric`, or counted"""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """values by name"""
    checkpoint: Text | None = None
    """the URI of the checkpoint that was saved with the report"""
    checkpoint_bytes: Count | None = None
    """the size of all of its files; absent if it is not known"""


class Reports(Message):
    """Some reports of an attempt."""

    reports: list[Report] = Field(min_length=1, max_length=1000)
    """in the order of their sequence"""
    world_size: WorldSize | None = None
    """how many workers an elastic group has; an attempt has the same number from its start to its end"""


class Decision(StrEnum):
    """What the holder of an attempt is to do."""

    CONTINUE = decisions.CONTINUE
    STOP = decisions.STOP
    KILL = decisions.KILL


class Answer(Message):
    """What to do now. `stop`: leave at the next report, after saving; `kill`: end the workers immediately.

    Reports after the one with the `deciding_sequence`, with their checkpoints, do not count: the training function
    would have left at it, had the service been able to answer.
    """

    decision: Decision = Decision.CONTINUE
    """`continue`, `stop` (save and leave at the next report) or `kill` (end the workers immediately)"""
    reason: str | None = None
    """why, in words"""
    deciding_sequence: Count | None = None
    """the sequence of the report that was answered with the decision to stop"""
    kept: list[str] = Field(default_factory=list)
    """in the answer to a checkpoint: all checkpoints of the trial that the service keeps. Those that it does not list
    are to be removed, except one that the training function may still read. An empty list says nothing: services of
    earlier versions send it"""


class Outcome(StrEnum):
    """How the training function ended, as its holder saw it. `stopped`: it left because it was asked to."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why an attempt failed. The page "Experiments and trials" of the documents says which kinds are retried."""

    LOST = "lost"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out_of_memory"
    USER_ERROR = "user_error"
    CANNOT_START = "cannot_start"
    SILENT = "silent"
    DIVERGED = "diverged"


class RankError(Message):
    """Where a rank failed."""

    rank: Rank
    """the rank of the worker"""
    traceback: ReadableText
    """its traceback"""


class Failure(Message):
    """Why an attempt failed. One that is lost before it `began` did not cause the loss."""

    kind: FailureKind
    """what kind of failure it is, which decides whether it is retried"""
    message: ReadableText
    """one line for people"""
    began: Bool = True
    """whether any worker ran"""
    traceback: ReadableText | None = None
    """the whole traceback of the rank that failed first"""
    ranks: list[RankError] = Field(default_factory=list)
    """the traceback of each rank that failed"""
    is_checkpoint_missing: Bool = False
    """whether the storage could be read, and did not have the checkpoint that the attempt resumed from"""

    @property
    def is_start_given_back(self) -> bool:
        """Whether the attempt was given back before any worker ran: mostly, because others took the resources."""
        return self.kind is FailureKind.PREEMPTED and not self.began


class Finish(Message):
    """The end of an attempt. With `next`, the answer may hold the next assignment of the same experiment."""

    outcome: Outcome
    """how the attempt ended"""
    error: Failure | None = None
    """why it failed"""
    phases: PhaseSeconds | None = None
    """the seconds since the training function's first line, by phase"""
    system_metrics: SystemSamples = Field(default_factory=list)
    """samples that the service has not confirmed yet, in the order of their sequence"""
    next: Bool = False
    """whether to answer with the next trial of the same experiment"""


class Finished(Message):
    """The answer to `finish`. `next` is None if the call did not ask for one, or if none is available now."""

    status: str
    """the trial's status now"""
    next: Assignment | None = None
    """the next assignment, if one was asked for and there is one"""


class LogChunk(Message):
    """A piece of a rank's output. A repeated chunk is stored once, because of its `offset`."""

    rank: Rank
    """the rank of the worker"""
    offset: Count
    """the bytes of this rank's output before this chunk"""
    text: ReadableText = Field(max_length=1_000_000)
    """the output"""
