"""What the kind, the entrypoints, the command and the worker group of a trainer require and exclude."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.mistakes import Mistake
from search.numbers_in_messages import counted
from search.space.space import Space
from service.specification.cross_field_checks.dataset_checks import RUNS_FUNCTIONS, mistakes_in_datasets
from service.specification.cross_field_checks.runtime_env_checks import mistakes_in_runtime_env
from trainer.wire import DatasetFunction, Kind, Placeholder, SelectorMember, Trainer, placeholders

LABEL_SELECTOR = ("trainer", "scaling", "label_selector")

TORCH_KINDS = (Kind.TORCH, Kind.LIGHTNING, Kind.TRANSFORMERS)
"""Those that Ray's `TorchTrainer` runs, by `BACKENDS` in `trainer/ray_train/trainer_kinds.py`."""

_NAMES_FILE = re.compile(r"(?:\./)?(?P<stem>[A-Za-z_][\w./]*?)(?:\.py)?:(?P<function>[A-Za-z_]\w*)")
"""An entrypoint that names a file, as in `train.py:train_fn`, where it has to name a module."""
_NAMES_MODULE = re.compile(r"\w+(\.\w+)*:\w+")


def mistakes_in_trainer(
    trainer: Trainer, space: Space, config: Mapping[str, Any], *, accepted: bool
) -> Iterator[Mistake]:
    """Yield mistakes with paths below `trainer`.

    One that was `accepted` before, maybe by fewer rules, stays right: only the space can have lost what it names.
    """
    if not accepted:
        yield from _mistakes_by_itself(trainer)
    if trainer.kind is Kind.COMMAND:
        yield from _mistakes_in_placeholders(trainer.command or (), space, config)


def _mistakes_by_itself(trainer: Trainer) -> Iterator[Mistake]:
    yield from _mistakes_in_entrypoints(trainer)
    yield from mistakes_in_datasets(trainer)
    yield from mistakes_in_runtime_env(trainer)
    yield from _mistakes_in_scaling(trainer)
    for name in trainer.env:
        if not name or "=" in name:
            yield Mistake(("env", name), "must be a variable's name: not empty, and without =")
    if trainer.validation is not None and trainer.kind not in RUNS_FUNCTIONS:
        yield Mistake(("validation",), f"is for training functions; kind {trainer.kind} validates by itself")
    if trainer.torch_config is not None and trainer.kind not in TORCH_KINDS:
        kinds = ", ".join(TORCH_KINDS)
        yield Mistake(("torch_config",), f"is for the kinds {kinds}; this experiment has kind {trainer.kind}")
    if trainer.kind is Kind.COMMAND:
        yield from _mistakes_in_command(trainer)
        return
    for name in ("command", "metrics"):
        if getattr(trainer, name) is not None:
            yield Mistake((name,), f"is for kind command; this experiment has kind {trainer.kind}")
    if trainer.kind is not Kind.EXTERNAL and trainer.entrypoint is None:
        yield Mistake(("entrypoint",), "is required: module:function, as in train:train_fn")


def as_module(entrypoint: str) -> str | None:
    """`src/train.py:train_fn` as `src.train:train_fn`; None for what does not name a file."""
    found = _NAMES_FILE.fullmatch(entrypoint)
    module = found and f"{found['stem'].replace('/', '.')}:{found['function']}"
    return module if module != entrypoint and module and _NAMES_MODULE.fullmatch(module) else None


def file_mistake(module: str) -> str:
    return f"names a file, not a module: write {module}"


def without_selector_member(mistake: Mistake) -> Mistake:
    """Removes what pydantic puts into the path of a mistake in a label selector."""
    path, place = mistake.path, len(LABEL_SELECTOR)
    is_inside = path[:place] == LABEL_SELECTOR and path[place : place + 1] and path[place] in set(SelectorMember)
    return Mistake((*path[:place], *path[place + 1 :]), mistake.message) if is_inside else mistake


def _mistakes_in_entrypoints(trainer: Trainer) -> Iterator[Mistake]:
    datasets = trainer.datasets.entrypoint if isinstance(trainer.datasets, DatasetFunction) else None
    validation = trainer.validation.entrypoint if trainer.validation is not None else None
    named = {(): trainer.entrypoint, ("datasets",): datasets, ("validation",): validation}
    for parent, entrypoint in named.items():
        if entrypoint is not None and (module := as_module(entrypoint)) is not None:
            yield Mistake((*parent, "entrypoint"), file_mistake(module))


def _mistakes_in_scaling(trainer: Trainer) -> Iterator[Mistake]:
    scaling = trainer.scaling
    if scaling.use_gpu and scaling.resources_per_worker.get("GPU", 1) == 0:
        yield Mistake(
            ("scaling", "resources_per_worker", "GPU"), "must be more than 0 with use_gpu: true, or leave use_gpu out"
        )
    elif not trainer.group.worker and trainer.kind is not Kind.EXTERNAL:
        yield Mistake(
            ("scaling", "resources_per_worker"),
            "reserves nothing, and Ray starts no such worker: give an amount, as {CPU: 1}, or leave it out for 1 CPU",
        )
    if scaling.elastic_resize_monitor_interval_s is not None and not scaling.is_elastic:
        yield Mistake(
            ("scaling", "elastic_resize_monitor_interval_s"),
            f"is for an elastic group, as with num_workers: {{min: 1, max: {max(2, scaling.num_workers)}}}; "
            f"this one always has {counted(scaling.num_workers, 'worker')}",
        )
    if isinstance(scaling.label_selector, list) and len(scaling.label_selector) != scaling.most_workers:
        yield Mistake(
            ("scaling", "label_selector"),
            f"is a list of {len(scaling.label_selector)}, and there are up to {scaling.most_workers} workers: "
            "give one object for each worker, or one, without a list, for all",
        )
    if scaling.is_elastic and trainer.kind is Kind.EXTERNAL:
        yield Mistake(
            ("scaling", "num_workers"), "must be a number with kind external, whose programs start their own workers"
        )


def _mistakes_in_command(trainer: Trainer) -> Iterator[Mistake]:
    if trainer.entrypoint is not None:
        yield Mistake(("entrypoint",), "is a training function; kind command runs `command` instead: leave one out")
    if trainer.command is None:
        yield Mistake(
            ("command",), 'is required: the program and its arguments, as in [python, train.py, "{params.lr}"]'
        )


def _mistakes_in_placeholders(command: Sequence[str], space: Space, config: Mapping[str, Any]) -> Iterator[Mistake]:
    for index, argument in enumerate(command):
        for placeholder in placeholders(argument):
            if (reason := _wrong_with(placeholder, space, config)) is not None:
                yield Mistake(("command", index), f"{{{placeholder.source}.{placeholder.name}}}: {reason}")


def _wrong_with(placeholder: Placeholder, space: Space, config: Mapping[str, Any]) -> str | None:
    name = placeholder.name
    if placeholder.source == "config" and name in config:
        return None
    if name not in space.root:
        known = f"the space has no parameter {name!r}; it has: {', '.join(space.root)}"
        return f"the config has no {name!r}" if placeholder.source == "config" else known
    if space.root[name].when and placeholder.default is None:
        return f"not every configuration has it; give a default, as in {{{placeholder.source}.{name}:0}}"
    return None
