"""What a slot gets to run a trial."""

from datetime import datetime

from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt

from trainer.wire.field_types import (
    Message,
)
from trainer.wire.specification.trainer import Trainer

STOP_GRACE_SECONDS = 30.0
"""How long a stopped attempt has to save and leave, unless the specification says otherwise."""


class Lease(Message):
    """The right to report for one attempt: `Authorization: Bearer <token>`, until `expires_at` unless extended."""

    token: str
    """the bearer token for calls on this attempt"""
    expires_at: datetime
    """when the attempt is lost, unless a call extends the lease"""
    seconds: float
    """how long each call extends the lease"""


class CheckpointRef(Message):
    """A saved directory."""

    uri: str
    """a path or an fsspec URI"""
    step: int
    """the step that it was saved at"""


class Assignment(Message):
    """One attempt of a trial to run: the answer to `claim`, to `ask`, and to a `finish` that asked for the next.

    The `earlier_checkpoints` count with the attempt's own. The answers to reports list those that are kept: the newest
    `keep_checkpoints`, and more. The others are to be removed. The folders of the `earlier_runs` are of no use any more
    once all of the `earlier_checkpoints` are gone, except for those with listed ones.
    """

    trial: str
    """the trial's id"""
    experiment: str
    """the experiment's name"""
    experiment_id: str
    """the experiment's id"""
    number: NonNegativeInt
    """the trial's number"""
    attempt: PositiveInt
    """the attempt's number, from 1"""
    params: dict[str, JsonValue]
    """the trial's configuration"""
    config: dict[str, JsonValue]
    """what the training function gets: the experiment's constants with `params` over them"""
    lease: Lease
    """the right to report for this attempt"""
    trainer: Trainer
    """how to run it"""
    resume: CheckpointRef | None = None
    """the checkpoint to resume from; null: a fresh start"""
    run_name: str
    """unique to the attempt: its checkpoints go below `storage_path/run_name`"""
    storage_path: str
    """where checkpoints are saved"""
    event_files: str | None = None
    """the directory to keep the event files in that the workers write for TensorBoard; null: they are not kept"""
    keep_checkpoints: PositiveInt = 1
    """how many of the trial's newest checkpoints to keep"""
    earlier_checkpoints: list[str] = Field(default_factory=list)
    """those of the trial's earlier attempts that the service knows, oldest first"""
    earlier_runs: list[str] = Field(default_factory=list)
    """the run names of the earlier attempts"""
    max_seconds: float | None = None
    """so long after its training function began, the attempt leaves at its next report"""
    kill_after_seconds: float | None = None
    """so long after its training function began, its workers are killed"""
    stop_grace_seconds: float = STOP_GRACE_SECONDS
    """how long a stopped attempt has to save and leave"""
    report_timeout_seconds: float | None = None
    """an attempt that reports nothing for so long is lost to its holder"""
    max_log_bytes: NonNegativeInt | None = None
    """how much output of the trial the service stores: no more of a rank need be sent. null: it is not known"""
    traceparent: str | None = None
    """of the attempt's trace (W3C Trace Context), for the header of the same name; null: no tracing"""
    system_metrics_seconds: float | None = None
    """how often the load of each of its nodes is to be sampled; null: never"""
