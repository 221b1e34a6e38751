"""The HTTP bodies that the service exchanges with agents, slots and external workers.

This contract is shared by all callers, including people with curl. It needs only pydantic, so that both sides can
import it. Times are UTC; durations are seconds.
"""

from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

from trainer.resources import resources_of_worker

# The service takes these rules from here, since it imports nothing else of the trainer.
from trainer.storable import is_storable_text as is_storable_text  # noqa: PLC0414
from trainer.storable import storable_float as storable_float  # noqa: PLC0414
from trainer.storable import storable_text as storable_text  # noqa: PLC0414

MAX_COUNT = 2**53
"""The largest step or sequence: up to here, every JSON reader represents integers exactly."""


def _text(text: str) -> str:
    if not is_storable_text(text):
        raise ValueError("must not have NUL characters or lone surrogates")
    return text


def _amount(value: float) -> float:
    if 0 < value < SMALLEST_AMOUNT:
        raise ValueError(f"must be 0 or at least {SMALLEST_AMOUNT:g}, the smallest amount that Ray can reserve")
    return value


SMALLEST_AMOUNT = 1e-4
Text = Annotated[str, AfterValidator(_text)]
ReadableText = Annotated[str, AfterValidator(storable_text)]
"""Text for people. It is repaired rather than refused, because it says why something failed."""
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Rank = Annotated[int, Field(ge=0, le=1_000_000)]
Capacity = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Amount = Annotated[Capacity, AfterValidator(_amount)]


class Message(BaseModel):
    """A body on the wire. An unknown field is an error that the sender gets to see."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Kind(StrEnum):
    """What runs the training function: a Ray Train backend or, for `external`, a program that asks for trials."""

    TORCH = "torch"
    LIGHTNING = "lightning"
    TRANSFORMERS = "transformers"
    XGBOOST = "xgboost"
    LIGHTGBM = "lightgbm"
    JAX = "jax"
    TENSORFLOW = "tensorflow"
    EXTERNAL = "external"


class Scaling(Message):
    """The worker group of a trial, in the names of Ray's `ScalingConfig`."""

    num_workers: int = Field(default=1, ge=1, le=100_000)
    use_gpu: bool = False
    resources_per_worker: dict[Text, Amount] = Field(default_factory=dict)
    placement_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"

    @cached_property
    def worker(self) -> dict[str, float]:
        """What one worker reserves, with Ray Train's defaults."""
        return resources_of_worker(self.resources_per_worker, use_gpu=self.use_gpu)


class Trainer(Message):
    """How a trial is run. `entrypoint` is `module:function`, in the package or importable on the cluster."""

    kind: Kind = Kind.TORCH
    entrypoint: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    package: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    scaling: Scaling = Scaling()
    env: dict[str, str] = Field(default_factory=dict)
    reuse_workers: bool | PositiveInt = Field(
        default=True,
        description="how many trials share the same worker processes; true: 100; false: new processes for each trial",
    )


class Lease(Message):
    """The right to report for one attempt: `Authorization: Bearer <token>`, until `expires_at` unless extended."""

    token: str
    expires_at: datetime
    seconds: float


class CheckpointRef(Message):
    """A saved directory: where it is (a path or an fsspec URI) and the step it holds."""

    uri: str
    step: int


class Assignment(Message):
    """One attempt of a trial to run: the answer to `claim`, to `ask`, and to a `finish` that asked for the next.

    `config` is what the training function gets: the experiment's constants with `params` over them.
    `resume` is the checkpoint that `ray.train.get_checkpoint()` must give; None for a fresh start.
    `run_name` is unique to the attempt; its checkpoints go below `storage_path/run_name`.
    `earlier_checkpoints`: those of the trial's earlier attempts that the service knows, oldest first. They count with
    the attempt's own, of which all but the newest `keep_checkpoints` are to be removed as soon as the service knows so
    many. `earlier_runs`: the run names of these attempts, whose folders are of no use any more once all of these
    checkpoints are gone.
    """

    trial: str
    experiment: str
    experiment_id: str
    number: NonNegativeInt
    attempt: PositiveInt
    params: dict[str, JsonValue]
    config: dict[str, JsonValue]
    lease: Lease
    trainer: Trainer
    resume: CheckpointRef | None = None
    run_name: str
    storage_path: str
    keep_checkpoints: PositiveInt = 1
    earlier_checkpoints: list[str] = Field(default_factory=list)
    earlier_runs: list[str] = Field(default_factory=list)
    max_seconds: float | None = None
    stop_grace_seconds: float = 30


class Node(Message):
    """A node of an agent's Ray cluster. `free` counts what idle slots hold as free."""

    total: dict[Text, Capacity]
    free: dict[Text, Capacity]


class HeldAttempt(Message):
    """One attempt that an agent was given, by its trial's id and its number."""

    trial: Text
    attempt: PositiveInt


class HeldAttempts(Message):
    """The attempts that the service believes to run on an agent of this name.

    `obsolete`: directories of experiments that have ended recently, which no trial can resume from. The agent removes
    them. Every agent gets the same directories, repeatedly for a while.
    """

    attempts: list[HeldAttempt]
    obsolete: list[str] = Field(default_factory=list)


class LostAttempt(HeldAttempt):
    """An attempt that no slot runs. `began`: whether any of its workers may have run, as in `Failure`."""

    began: bool = True


class Instance(Message):
    """One process of an agent.

    `place` names a PID namespace and boot of a machine; `started` is the process's start time there, in clock ticks.
    """

    place: Text = Field(min_length=1, max_length=500)
    pid: Count
    started: Count


class Claim(Message):
    """An agent's request for a trial of any experiment. The same `request_id` gets the same answer.

    `instance`: the process that claims. While it keeps claiming, another process with the agent's name is refused (409
    `agent-name-taken`, with the current process as `holder`), unless it states in `replaces` that the holder is dead.

    `lost`: attempts that the agent was given and that none of its slots runs. The service ends them immediately, before
    their leases expire, and ignores those that have ended already.
    """

    request_id: Text = Field(min_length=1, max_length=200)
    nodes: list[Node]
    running: list[Text] = Field(default_factory=list, description="ids of the trials that run on this agent")
    lost: list[LostAttempt] = Field(default_factory=list)
    instance: Instance | None = None
    replaces: Instance | None = None
    wait_seconds: NonNegativeFloat = Field(default=0, le=60, allow_inf_nan=False)


class Heartbeat(Message):
    """Extends the lease. The service answers immediately if there is something to do, else after `wait_seconds`."""

    wait_seconds: NonNegativeFloat = Field(default=0, le=60, allow_inf_nan=False)


class Report(Message):
    """One call of `ray.train.report()`. `sequence` counts an attempt's reports from 0.

    `step` may be left out: the service takes it from the experiment's `step_metric`, or counts. The same report may be
    sent again with a checkpoint: the service then adds the checkpoint and changes nothing else.
    """

    sequence: Count
    step: Count | None = None
    metrics: dict[str, Any] = Field(default_factory=dict)
    checkpoint: Text | None = None


class Reports(Message):
    reports: list[Report] = Field(min_length=1, max_length=1000)


class Decision(StrEnum):
    CONTINUE = "continue"
    STOP = "stop"
    KILL = "kill"


class Answer(Message):
    """What to do now. `stop`: leave at the next report, after saving; `kill`: end the workers immediately."""

    decision: Decision = Decision.CONTINUE
    reason: str | None = None


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
    rank: Rank
    traceback: ReadableText


class Failure(Message):
    """`message` is one line for people; `traceback` is the whole one of the rank that failed first.

    `ranks` has the traceback of each failed rank. `began`: whether any worker ran; an attempt that is lost before that
    did not cause the loss.
    """

    kind: FailureKind
    message: ReadableText
    began: bool = True
    traceback: ReadableText | None = None
    ranks: list[RankError] = Field(default_factory=list)


class Finish(Message):
    """The end of an attempt. With `next`, the answer may hold the next assignment of the same experiment."""

    outcome: Outcome
    error: Failure | None = None
    next: bool = False


class Finished(Message):
    """The answer to `finish`. `next` is None if the call did not ask for one, or if none is available now."""

    status: str
    next: Assignment | None = None


class LogChunk(Message):
    """A piece of a rank's output. `offset` counts the bytes sent before, so that a repeated chunk is stored once."""

    rank: Rank
    offset: Count
    text: ReadableText = Field(max_length=1_000_000)
