"""The part of `trainer.wire` that says how checkpoints are validated: Ray Train's `ValidationConfig`."""

from typing import Annotated

from pydantic import Field, JsonValue

from trainer.wire.field_types import Amount, JsonNumber, Key, LabelSelector, Message
from trainer.wire.specification.datasets import Entrypoint


class ValidationTask(Message):
    """What the Ray task of a validation reserves, where it runs, and how often it is started: options of `ray.remote`.

    By default it reserves nothing, so that it also starts where the workers of trials hold everything.
    """

    num_cpus: Amount = 0
    """the CPUs that it reserves"""
    num_gpus: Amount = 0
    """the GPUs that it reserves, and sees"""
    memory: Amount = 0
    """the bytes of memory that it reserves"""
    resources: dict[Key, Amount] = Field(default_factory=dict)
    """other resources of Ray that it reserves"""
    label_selector: LabelSelector = Field(default_factory=dict)
    """the labels of the nodes where it may run"""
    max_retries: Annotated[int, Field(ge=0, le=100), JsonNumber] = 3
    """how often it is started again after the death of its process"""


class Validation(Message):
    """How checkpoints are validated that the training function reports with `validation`."""

    entrypoint: Entrypoint
    """`module:function`: it gets the checkpoint and `fn_kwargs`, and returns a dict of metrics"""
    fn_kwargs: dict[Key, JsonValue] = Field(default_factory=dict)
    """its keyword arguments; those of a report's `ValidationTaskConfig` are added"""
    timeout_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False), JsonNumber] | None = None
    """how long a validation may take, for reports that say `validation=True`"""
    ray_remote_kwargs: ValidationTask = ValidationTask()
    """the options of its Ray task"""
