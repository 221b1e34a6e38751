"""How a trial is run: the part `trainer` of a specification, which agents and slots get as it is."""

import re
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainer.resources import DEFAULT_STRATEGY, WorkerGroup
from trainer.wire.field_types import (
    Amount,
    Bool,
    EnvironmentName,
    JsonNumber,
    Key,
    LabelSelectors,
    Message,
    Ordinal,
    Text,
    WorldSize,
    in_words,
)
from trainer.wire.specification.datasets import DataConfig, Datasets, Entrypoint
from trainer.wire.specification.num_workers import with_max_workers
from trainer.wire.specification.runtime_env import RuntimeEnv
from trainer.wire.specification.validation import Validation


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
    placement_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = DEFAULT_STRATEGY
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


class TorchConfig(Message):
    """The process group of the workers, as in Ray's `TorchConfig`."""

    backend: (
        Annotated[
            str,
            Field(pattern=r"^[a-z0-9_]+(:[a-z0-9_]+(,[a-z0-9_]+:[a-z0-9_]+)*)?$"),
            in_words("must be torch's name for it in lower case, such as nccl, gloo or cpu:gloo,cuda:nccl"),
        ]
        | None
    ) = None
    """torch's name for it, such as `gloo` or `cpu:gloo,cuda:nccl`; null: `nccl` with GPUs, otherwise `gloo`"""
    timeout_s: Annotated[int, Field(ge=1, le=10_000_000), JsonNumber] = 1800
    """after how many seconds an operation between workers fails"""


class SecretSource(Message):
    """Where the agent that runs a trial finds a secret: in its environment, or in a file on its machine."""

    from_agent_env: EnvironmentName | None = None
    """a variable of the agent's environment"""
    from_agent_file: (
        Annotated[
            str,
            Field(pattern=r"^/[^\x00]+$", max_length=1000),
            in_words("must be an absolute path of at most 1,000 characters, without NUL characters"),
        ]
        | None
    ) = None
    """an absolute path on the agent's machine"""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.from_agent_env is None) is (self.from_agent_file is None):
            raise ValueError("must have either from_agent_env (a variable) or from_agent_file (an absolute path)")
        return self


MAX_PATTERN_CHARACTERS = 4_000
"""The limit of all patterns of a command: the service compiles them, and a character set can take a millisecond."""


def _bounded(patterns: Any) -> Any:
    if (
        isinstance(patterns, list)
        and sum(len(one) for one in patterns if isinstance(one, str)) > MAX_PATTERN_CHARACTERS
    ):
        raise ValueError(f"must have at most {MAX_PATTERN_CHARACTERS:,} characters in all")
    return patterns


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression of Python's: {error}") from None
    if not groups:
        raise ValueError("has no named group: name the metric, as in `loss=(?P<loss>[-+.0-9e]+)`")
    if ("name" in groups) != ("value" in groups):
        raise ValueError("needs both groups, `name` and `value`, to read the metric's name from the line")
    return text


class CommandMetrics(Message):
    """Where the metrics of a command come from, beside its calls of PACELINE_REPORT_URL. Only rank 0 is read."""

    stdout: Annotated[list[Annotated[Text, AfterValidator(_pattern)]], BeforeValidator(_bounded)] = Field(
        default_factory=list, max_length=100
    )
    """regular expressions, searched for in each line of standard output; each line that matches is a report. A named
    group is a metric; the groups `name` and `value` find all pairs of a line"""
    file: Text | None = Field(default=None, min_length=1, max_length=1000)
    """a file, relative to the working directory, to which the command appends a JSON object per report"""


class Trainer(Message):
    """How a trial is run."""

    kind: Kind = Kind.TORCH
    """what runs the trial"""
    entrypoint: Entrypoint | None = None
    """`module:function`, in the package or importable on the cluster"""
    package: (
        Annotated[
            str,
            Field(pattern=r"^sha256:[0-9a-f]{64}$"),
            in_words("must be the id of a package, sha256: and 64 hex digits, as `POST /v1/packages` returns it"),
        ]
        | None
    ) = None
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
    reuse_workers: Annotated[Bool | Ordinal, in_words("must be true, false, or a whole number from 1 on")] = Field(
        default=True,
        description="how many trials share the same worker processes; true: 100; false: new processes for each trial",
    )

    @cached_property
    def group(self) -> WorkerGroup:
        """What the workers reserve, and where they fit beside a validation."""
        validation = None if self.validation is None else self.validation.model_dump()
        return WorkerGroup.of(self.scaling.model_dump(), validation)
