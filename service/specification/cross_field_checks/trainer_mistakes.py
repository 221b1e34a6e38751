"""What the kind of a trainer requires and excludes, and the placeholders of a command."""

from collections.abc import Iterator, Mapping
from typing import Any

from search.mistakes import Mistake
from search.space.space import Space
from service.specification.cross_field_checks.dataset_mistakes import RUNS_FUNCTIONS, mistakes_in_datasets
from service.specification.cross_field_checks.runtime_env_mistakes import mistakes_in_runtime_env
from service.specification.cross_field_checks.scaling_mistakes import mistakes_in_scaling
from trainer.wire import Kind, Placeholder, Trainer, placeholders

TORCH_KINDS = (Kind.TORCH, Kind.LIGHTNING, Kind.TRANSFORMERS)
"""Those that Ray's `TorchTrainer` runs."""


def mistakes_in_trainer(trainer: Trainer, space: Space, config: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`."""
    yield from mistakes_in_datasets(trainer)
    yield from mistakes_in_runtime_env(trainer)
    yield from mistakes_in_scaling(trainer)
    if trainer.validation is not None and trainer.kind not in RUNS_FUNCTIONS:
        yield Mistake(("validation",), f"is for training functions; kind {trainer.kind} validates by itself")
    if trainer.torch_config is not None and trainer.kind not in TORCH_KINDS:
        kinds = ", ".join(TORCH_KINDS)
        yield Mistake(("torch_config",), f"is for the kinds {kinds}; this experiment has kind {trainer.kind}")
    if trainer.kind is Kind.COMMAND:
        yield from _mistakes_in_command(trainer, space, config)
        return
    for name in ("command", "metrics"):
        if getattr(trainer, name) is not None:
            yield Mistake((name,), f"is for kind command; this experiment has kind {trainer.kind}")
    if trainer.kind is not Kind.EXTERNAL and trainer.entrypoint is None:
        yield Mistake(("entrypoint",), "is required: module:function, as in train:train_fn")


def _mistakes_in_command(trainer: Trainer, space: Space, config: Mapping[str, Any]) -> Iterator[Mistake]:
    if trainer.entrypoint is not None:
        yield Mistake(("entrypoint",), "is a training function; kind command runs `command` instead: leave one out")
    if trainer.command is None:
        yield Mistake(
            ("command",), 'is required: the program and its arguments, as in [python, train.py, "{params.lr}"]'
        )
        return
    for index, argument in enumerate(trainer.command):
        for placeholder in placeholders(argument):
            if (reason := _wrong_with(placeholder, space, config)) is not None:
                yield Mistake(("command", index), f"{{{placeholder.source}.{placeholder.name}}}: {reason}")


def _wrong_with(placeholder: Placeholder, space: Space, config: Mapping[str, Any]) -> str | None:
    name = placeholder.name
    if placeholder.source == "config":
        return None if name in config or name in space.root else f"the config has no {name!r}"
    if name not in space.root:
        return f"the space has no parameter {name!r}; it has: {', '.join(space.root)}"
    if space.root[name].when and placeholder.default is None:
        return f"not every configuration has it; give a default, as in {{params.{name}:0}}"
    return None
