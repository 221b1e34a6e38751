"""What to write in place of a wrong value: by the mistake's message, the value, and the place of the field."""

import json
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

from search.mistakes import NO_LIST, NO_OBJECT, NO_TEXT, Mistake, Path
from search.space.scalars import NO_SCALAR
from service.specification.cross_field_checks.trainer_checks import as_module, file_mistake
from service.specification.hints.number_hints import as_json_number
from service.specification.hints.path_patterns import ANY, item_at, matches
from trainer.wire import NO_ENTRYPOINT

_WANTS_NUMBER = re.compile("integer|number")
_SECONDS = re.compile(r"_(seconds|s)$")
_NAMED_BY_USER = ("space", "forbid", "enqueue", "config")
"""The fields in which names are of the user's choice."""

_OBJECTS: Mapping[Path, str] = {
    ("space",): "{lr: {type: float, low: 0.001, high: 0.1}}",
    ("space", ANY): "{type: float, low: 0.001, high: 0.1}",
    ("space", ANY, "prior"): "{value: 0.01, confidence: high}",
    ("space", ANY, "when"): "{optimizer: sgd}",
    ("forbid", ANY): "{optimizer: adam, lr: {min: 0.5}}",
    ("config",): "{epochs: 10}",
    ("objectives", ANY): "{metric: loss, direction: minimize}",
    ("constraints", ANY): "{metric: size, max: 5}",
    ("enqueue", ANY): "{lr: 0.01}",
    ("trainer",): "{entrypoint: train:train_fn}",
    ("trainer", "scaling"): "{num_workers: 2}",
    ("trainer", "env"): '{OMP_NUM_THREADS: "1"}',
    ("limits",): "{max_trials: 50}",
    ("limits", "no_improvement"): "{trials: 20}",
    ("failures",): "{max_retries: 1}",
    ("confirm",): "{top: 3, seeds: 3}",
    ("checkpoints",): "{keep: 1}",
    ("tags",): "{team: vision}",
}
_LISTS: Mapping[Path, str] = {
    ("space", ANY, "choices"): "[sgd, adam]",
    ("forbid",): "[{optimizer: adam, lr: {min: 0.5}}]",
    ("objectives",): "[{metric: loss, direction: minimize}]",
    ("constraints",): "[{metric: size, max: 5}]",
    ("search", "warm_start"): "[earlier-experiment]",
    ("enqueue",): "[{lr: 0.01}]",
    ("trainer", "command"): "[python, train.py]",
}
_EXAMPLES = {NO_OBJECT: _OBJECTS, NO_LIST: _LISTS}
_NAMED_CHOICES = "give each choice a name, such as small, and look its value up in the training function"


def with_hint(mistake: Mistake, document: Any) -> Mistake:
    """The mistake with what to write instead, if that is known; otherwise unchanged."""
    value = reduce(item_at, mistake.path, document)
    message = None if value is None else _message(mistake, value)
    return mistake if message is None else Mistake(mistake.path, message)


def _message(mistake: Mistake, value: Any) -> str | None:
    match mistake.message:
        case message if message == NO_TEXT:
            is_scalar = isinstance(value, bool | int | float)
            return f"{NO_TEXT}: write {json.dumps(json.dumps(value))}" if is_scalar else None
        case message if message in _EXAMPLES:
            return _with_example(message, mistake.path, _EXAMPLES[message])
        case message if message == NO_SCALAR and matches(("space", ANY, "choices", ANY), mistake.path):
            return f"{NO_SCALAR}: {_NAMED_CHOICES}"
        case message if message == NO_ENTRYPOINT:
            module = as_module(value) if isinstance(value, str) else None
            return module and file_mistake(module)
        case message if isinstance(value, str) and _WANTS_NUMBER.search(message):
            return _number_hint(mistake.path, value)
    return None


def _with_example(message: str, path: Path, examples: Mapping[Path, str]) -> str | None:
    example = next((one for pattern, one in examples.items() if matches(pattern, path)), None)
    return example and f"{message}, as in {example}"


def _number_hint(path: Path, text: str) -> str | None:
    """For text that means a number, the number as JSON spells it."""
    number = as_json_number(text)
    if number is not None:
        return f"must be a number, and {text!r} is text: write {number}"
    is_time = path[0] not in _NAMED_BY_USER and _SECONDS.search(str(path[-1]))
    return "must be a number of seconds, such as 3600" if is_time else None
