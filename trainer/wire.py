"""The HTTP bodies that the service exchanges with agents, slots and external workers.

This contract is shared by all callers, including people with curl. It needs only pydantic, so that both sides can
import it. Times are UTC; durations are seconds.
"""

import re
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, NonNegativeInt, PositiveInt, model_validator

from trainer.command_template import Placeholder as Placeholder  # noqa: PLC0414
from trainer.command_template import placeholders as placeholders  # noqa: PLC0414
from trainer.datasets_wire import ENTRYPOINT, DataConfig, Datasets
from trainer.datasets_wire import DatasetFiles as DatasetFiles  # noqa: PLC0414
from trainer.datasets_wire import DatasetFormat as DatasetFormat  # noqa: PLC0414
from trainer.datasets_wire import DatasetFunction as DatasetFunction  # noqa: PLC0414
from trainer.datasets_wire import UnionMember as UnionMember  # noqa: PLC0414
from trainer.node_labels import selector_text as selector_text  # noqa: PLC0414
from trainer.node_labels import selects as selects  # noqa: PLC0414
from trainer.num_workers_wire import WorkerRange as WorkerRange  # noqa: PLC0414
from trainer.num_workers_wire import with_max_workers
from trainer.package_files import REQUIREMENTS_FILE as REQUIREMENTS_FILE  # noqa: PLC0414
from trainer.package_files import is_in_package as is_in_package  # noqa: PLC0414
from trainer.package_files import requirements_in as requirements_in  # noqa: PLC0414
from trainer.resources import Room as Room  # noqa: PLC0414
from trainer.resources import WorkerGroup as WorkerGroup  # noqa: PLC0414
from trainer.resources import describe_labels as describe_labels  # noqa: PLC0414
from trainer.runtime_env_wire import Pip as Pip  # noqa: PLC0414
from trainer.runtime_env_wire import RuntimeEnv as RuntimeEnv  # noqa: PLC0414
from trainer.runtime_env_wire import Uv as Uv  # noqa: PLC0414

# The service takes these rules from here, since it imports nothing else of the trainer.
from trainer.storable import is_storable_text as is_storable_text  # noqa: PLC0414
from trainer.storable import storable_float as storable_float  # noqa: PLC0414
from trainer.storable import storable_text as storable_text  # noqa: PLC0414
from trainer.validation_wire import Validation as Validation  # noqa: PLC0414
from trainer.wire_types import MAX_COUNT as MAX_COUNT  # noqa: PLC0414
from trainer.wire_types import (
    Amount,
    Bool,
    Capacity,
    DeletionId,
    EnvironmentName,
    JsonNumber,
    Key,
    LabelSelectors,
    Message,
    Ordinal,
    Rank,
    ReadableText,
    Seconds,
    SystemMetric,
    SystemValue,
    WorldSize,
)
from trainer.wire_types import Count as Count  # noqa: PLC0414
from trainer.wire_types import SelectorMember as SelectorMember  # noqa: PLC0414
from trainer.wire_types import Text as Text  # noqa: PLC0414


class Kind(StrEnum):
    """What runs a trial: a Ray Train backend, any command on its workers, or a program that asks for trials."""

    TORCH = "torch"
    LIGHTNING = "lightning"
    TRANSFORMERS = "transformers"
    XGBOOST = "xgboost"
    LIGHTGBM = "lightgbm"
    JAX = "jax"
    TENSORFLOW = "tensorflow"
    COMMAND = "command"
    EXTERNAL = "external"


STOP_GRACE_SECONDS = 30.0
"""How long a stopped attempt has to save and leave, unless the specification says otherwise."""


class Scaling(Message):
    """The worker group of a trial, in the names of Ray's `ScalingConfig`."""

    num_workers: WorldSize = 1
    """the number of worker processes; of an elastic group the fewest. `{min: 1, max: 4}` and `[1, 4]` give max_workers,
    too"""
    max_workers: WorldSize | None = None
    """the most workers of an elastic group, which has as many as there is room for; absent: there are always
    num_workers"""
    elastic_resize_monitor_interval_s: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False), JsonNumber] | None = (
        None
    )
    """for an elastic group: every so many seconds it looks for room to grow; absent: 60"""
    use_gpu: Bool = False
    """whether each worker gets a GPU"""
    resources_per_worker: dict[Key, Amount] = Field(default_factory=dict)
    """what each worker reserves, such as `{CPU: 2}`; absent: 1 CPU, or 1 GPU"""
    accelerator_type: Text | None = Field(default=None, min_length=1, max_length=100)
    """only nodes with accelerators of this type, as Ray names them, such as `A100`"""
    placement_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """how Ray places workers on nodes"""
    label_selector: LabelSelectors | None = None
    """only nodes with these labels, such as `{zone: a}`; a list has a selector for each worker"""

    @model_validator(mode="before")
    @classmethod
    def _split_range(cls, given: Any) -> Any:
        return with_max_workers(given)

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.num_workers > self.most_workers:
            raise ValueError(f"max_workers ({self.most_workers}) must not be less than num_workers")
        return self

    @property
    def is_elastic(self) -> bool:
        return self.max_workers is not None

    @property
    def most_workers(self) -> int:
        return self.num_workers if self.max_workers is None else self.max_workers

    @cached_property
    def group(self) -> WorkerGroup:
        """What the workers reserve, with Ray Train's defaults, and where they fit."""
        return WorkerGroup.of(self.model_dump())

    @property
    def worker(self) -> dict[str, float]:
        """What one worker reserves."""
        return self.group.worker


class TorchConfig(Message):
    """The process group of the workers, as in Ray's `TorchConfig`."""

    backend: str | None = Field(default=None, pattern=r"^[a-z0-9_]+(:[a-z0-9_]+(,[a-z0-9_]+:[a-z0-9_]+)*)?$")
    """torch's name for it, such as `gloo` or `cpu:gloo,cuda:nccl`; null: `nccl` with GPUs, otherwise `gloo`"""
    timeout_s: Annotated[int, Field(ge=1, le=10_000_000), JsonNumber] = 1800
    """after how many seconds an operation between workers fails"""


class SecretSource(Message):
    """Where the agent that runs a trial finds a secret: in its environment, or in a file on its machine."""

    from_agent_env: EnvironmentName | None = None
    """a variable of the agent's environment"""
    from_agent_file: str | None = Field(default=None, pattern=r"^/[^\x00]+$", max_length=1000)
    """an absolute path on the agent's machine"""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.from_agent_env is None) is (self.from_agent_file is None):
            raise ValueError("must have either from_agent_env (a variable) or from_agent_file (an absolute path)")
        return self


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groupindex
    except re.error as error:
        raise ValueError(f"is no regular expression of Python's: {error}") from None
    if not groups:
        raise ValueError("has no named group: name the metric, as in `loss=(?P<loss>[-+.0-9e]+)`")
    if ("name" in groups) != ("value" in groups):
        raise ValueError("needs both groups, `name` and `value`, to read the metric's name from the line")
    return text


class CommandMetrics(Message):
    """Where the metrics of a command come from, beside its calls of PACELINE_REPORT_URL. Only rank 0 is read."""

    stdout: list[Annotated[Text, AfterValidator(_pattern)]] = Field(default_factory=list, max_length=100)
    """regular expressions, searched for in each line of standard output; each line that matches is a report. A named
    group is a metric; the groups `name` and `value` find all pairs of a line"""
    file: Text | None = Field(default=None, min_length=1, max_length=1000)
    """a file, relative to the working directory, to which the command appends a JSON object per report"""


class Trainer(Message):
    """How a trial is run."""

    kind: Kind = Kind.TORCH
    """what runs the trial"""
    entrypoint: str | None = Field(default=None, pattern=ENTRYPOINT)
    """`module:function`, in the package or importable on the cluster"""
    package: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """the id of the code, from `POST /v1/packages`"""
    command: list[Text] | None = Field(default=None, min_length=1, max_length=1000)
    """for kind command: the program and its arguments; `{params.lr}` and `{config.epochs}` stand for values, and
    `{params.momentum:0}` has a default"""
    metrics: CommandMetrics | None = None
    """for kind command: where its metrics come from"""
    scaling: Scaling = Scaling()
    """the workers"""
    torch_config: TorchConfig | None = None
    """for the kinds of torch: the process group of the workers"""
    datasets: Datasets | None = None
    """the datasets of Ray Data, for `ray.train.get_dataset_shard`: files by name, or a function that makes them"""
    data: DataConfig | None = None
    """how the datasets get to the workers"""
    validation: Validation | None = None
    """how checkpoints are validated, beside the training"""
    runtime_env: RuntimeEnv | None = None
    """what is installed for the workers: Ray's runtime environment"""
    env: dict[str, str] = Field(default_factory=dict)
    """environment variables of the workers; they are stored and shown"""
    secrets: dict[EnvironmentName, SecretSource] = Field(default_factory=dict, max_length=100)
    """environment variables of the workers whose values only the agent knows, by name"""
    reuse_workers: Bool | Ordinal = Field(
        default=True,
        description="how many trials share the same worker processes; true: 100; false: new processes for each trial",
    )

    @cached_property
    def group(self) -> WorkerGroup:
        """What the workers reserve, and where they fit beside a validation."""
        validation = None if self.validation is None else self.validation.model_dump()
        return WorkerGroup.of(self.scaling.model_dump(), validation)


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

    The `earlier_checkpoints` count with the attempt's own, of which all but the newest `keep_checkpoints` are to be
    removed as soon as the service knows so many. The folders of the `earlier_runs` are of no use any more once all of
    these checkpoints are gone.
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
    traceparent: str | None = None
    """of the attempt's trace (W3C Trace Context), for the header of the same name; null: no tracing"""
    system_metrics_seconds: float | None = None
    """how often the load of each of its nodes is to be sampled; null: never"""


class Node(Message):
    """A node of an agent's Ray cluster. `free` counts what idle slots hold as free."""

    total: dict[Key, Capacity]
    """all resources of the node"""
    free: dict[Key, Capacity]
    """those that no trial uses"""
    labels: dict[Key, Text] = Field(default_factory=dict)
    """the node's labels, which `trainer.scaling.label_selector` selects"""


class HeldAttempt(Message):
    """One attempt that an agent was given, by its trial's id and its number."""

    trial: Text
    """the trial's id"""
    attempt: Ordinal
    """the attempt's number"""


class Deletion(Message):
    """A directory that an agent is to delete: of a deleted experiment, or with checkpoints that are not kept."""

    id: int
    """names the deletion"""
    directory: str
    """what is to be deleted"""


class FailedDeletion(Message):
    """Why a directory could not be deleted. The service names it again."""

    id: DeletionId
    """names the deletion"""
    error: ReadableText = Field(max_length=2_000)
    """why, for people"""


class DeletionResults(Message):
    """What became of deletions. A directory that does not exist is deleted."""

    deleted: list[DeletionId] = Field(default_factory=list, max_length=1_000)
    """the ids of those that are done"""
    failed: list[FailedDeletion] = Field(default_factory=list, max_length=1_000)
    """those that are not"""


class PartlyNeededFolder(Message):
    """The folder of an attempt that was cut off, perhaps while it saved a checkpoint, and has saved others before."""

    directory: str
    """the folder"""
    keep: list[str]
    """the names of the directories in it that are checkpoints: remove the other directories"""


class HeldAttempts(Message):
    """The attempts that the service believes to run on an agent of this name.

    `obsolete`: directories of experiments that have ended recently, which no trial can resume from. The agent removes
    them, and what `partly_needed` names. Every agent gets the same ones, repeatedly for a while. `deletions` are
    directories that this agent is to delete; they are named until it reports so. `storage`: where checkpoints go.
    """

    attempts: list[HeldAttempt]
    """the attempts that the service believes to run on this agent"""
    obsolete: list[str] = Field(default_factory=list)
    """directories of checkpoints that no trial can resume from: remove them"""
    partly_needed: list[PartlyNeededFolder] = Field(default_factory=list)
    """folders of attempts that may also hold parts of checkpoints: remove those"""
    deletions: list[Deletion] = Field(default_factory=list)
    """directories that are not needed any more: delete them, and say what became of them"""
    storage: str | None = None
    """where checkpoints are saved"""


class LostAttempt(HeldAttempt):
    """An attempt that no slot runs."""

    began: Bool = True
    """whether any of its workers may have run"""


class Instance(Message):
    """One process of an agent."""

    place: Text = Field(min_length=1, max_length=500)
    """a PID namespace and boot of a machine"""
    pid: Count
    """the process id there"""
    started: Count
    """the process's start time there, in clock ticks"""


class Claim(Message):
    """An agent's request for a trial of any experiment. The same `request_id` gets the same answer.

    `instance`: the process that claims. While it keeps claiming, another process with the agent's name is refused (409
    `agent-name-taken`, with the current process as `holder`), unless it states in `replaces` that the holder is dead.

    `lost`: attempts that the agent was given and that none of its slots runs. The service ends them immediately, before
    their leases expire, and ignores those that have ended already.

    `storage_error`: why the agent cannot write to the storage. It then gets no trial.
    """

    request_id: Text = Field(min_length=1, max_length=200)
    """names this claim: a repeat gets the same answer"""
    nodes: list[Node]
    """the nodes of the agent's cluster"""
    running: list[Text] = Field(default_factory=list, description="ids of the trials that run on this agent")
    lost: list[LostAttempt] = Field(default_factory=list)
    """attempts that the agent was given and none of its slots runs"""
    instance: Instance | None = None
    """the process that claims"""
    replaces: Instance | None = None
    """the process that held the agent's name, if it is known to be dead"""
    storage_error: ReadableText | None = Field(default=None, max_length=2_000)
    """why the agent cannot write to the storage"""
    wait_seconds: Seconds = 0
    """how long to wait for a trial"""


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

    CONTINUE = "continue"
    STOP = "stop"
    KILL = "kill"


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
    """checkpoints of the trial that must not be removed, however many newer ones there are. While any of them is
    pinned, these are all checkpoints of the trial that the service knows"""


class Outcome(StrEnum):
    """How the training function ended, as its holder saw it. `stopped`: it left because it was asked to."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why an attempt failed. `service.domain.failures` says which kinds are retried and on whose budget."""

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
