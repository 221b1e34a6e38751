"""Messages about fields of a wrong type say what would be right, in words: no pattern, and no member of a union."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from service.errors import Invalid
from service.specification.parser import parse_spec

SPEC: dict[str, Any] = {
    "name": "tuned",
    "tags": {"team": "vision"},
    "space": {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True, "prior": {"value": 0.1, "confidence": "high"}},
        "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
        "momentum": {"type": "float", "low": 0.0, "high": 0.9, "step": 0.1, "when": {"optimizer": ["sgd"]}},
        "depth": {"type": "int", "low": 1, "high": 9},
    },
    "forbid": [{"optimizer": "adam", "lr": {"min": 0.5}}],
    "config": {"epochs": 9},
    "objectives": [{"metric": "accuracy", "direction": "maximize", "target": 0.99}],
    "search": {"sampler": "tpe", "seed": 7},
    "early_stopping": {"rule": "asha", "max_step": 9},
    "limits": {"max_trials": 9, "parallelism": 2},
    "checkpoints": {"keep": 1},
    "trainer": {
        "kind": "torch",
        "entrypoint": "train:train_fn",
        "package": f"sha256:{'0' * 64}",
        "scaling": {"num_workers": 2, "resources_per_worker": {"CPU": 1}, "label_selector": {"zone": "a"}},
        "torch_config": {"backend": "gloo"},
        "datasets": {"rows": {"read": "csv", "paths": ["/data/rows.csv"]}},
        "data": {"split": ["rows"]},
        "runtime_env": {"conda": "paceline"},
        "env": {"LEVEL": "1"},
        "secrets": {"TOKEN": {"from_agent_env": "TOKEN"}, "KEY": {"from_agent_file": "/run/key"}},
        "validation": {"entrypoint": "train:validate"},
        "reuse_workers": 3,
    },
}
WRONG: list[Any] = [-1, 0.5, "a b:c d", "", [], [-1], {}, {"a b": -1}, True, None]
INTERNALS = re.compile(
    r"should match|function-|literal\[|json-or-python|0x[0-9a-f]{6}|\[key\]|valid (dict|list|string|bool)"
)


def fields(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from fields(one, *path, key)


def with_value(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(SPEC)
    parent: Any = changed
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    return changed


def mistakes_in(document: dict[str, Any]) -> str:
    try:
        parse_spec(document)
    except Invalid as refused:
        return str(refused)
    return ""


def test_the_document_itself_has_no_mistakes() -> None:
    assert mistakes_in(SPEC) == ""


@pytest.mark.parametrize("path", list(fields(SPEC)), ids=lambda path: ".".join(map(str, path)))
def test_a_wrong_value_gets_a_message_in_words(path: tuple[Any, ...]) -> None:
    told = [mistakes_in(with_value(path, value)) for value in WRONG]
    assert [one for one in told if INTERNALS.search(one)] == []


@pytest.mark.parametrize(("field", "value"), [("secrets", {"from_agent_env": "X"}), ("env", "1")])
def test_a_wrong_name_of_a_variable_gets_a_message_in_words(field: str, value: Any) -> None:
    assert not INTERNALS.search(mistakes_in(with_value(("trainer", field), {"a-b": value})))
