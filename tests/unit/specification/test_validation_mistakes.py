"""What the validation of a specification requires and excludes."""

from typing import Any

import pytest

from service.errors import Invalid
from service.specification.parser import parse_spec
from tests.conftest import a_spec


def mistakes(validation: Any, **trainer: Any) -> dict[str, str]:
    try:
        parse_spec(a_spec(trainer={"entrypoint": "train:train", "validation": validation} | trainer))
    except Invalid as invalid:
        return {".".join(map(str, one.path)): one.message for one in invalid.mistakes}
    return {}


@pytest.mark.parametrize(
    "validation",
    [
        {"entrypoint": "train:validate"},
        {"entrypoint": "a.b:c", "fn_kwargs": {"batch": [1]}, "timeout_s": 0.5},
        {
            "entrypoint": "a:b",
            "ray_remote_kwargs": {"num_gpus": 0.5, "label_selector": {"zone": "a"}, "max_retries": 0},
        },
    ],
)
def test_validations_that_are_right(validation: Any) -> None:
    assert mistakes(validation) == {}


@pytest.mark.parametrize(
    ("validation", "path", "says"),
    [
        ({}, "entrypoint", "required"),
        ({"entrypoint": "train"}, "entrypoint", "module:function"),
        ({"entrypoint": "a:b", "fn": "c"}, "fn", "known here: entrypoint, fn_kwargs, ray_remote_kwargs, timeout_s"),
        ({"entrypoint": "a:b", "timeout_s": 0}, "timeout_s", "greater than 0"),
        ({"entrypoint": "a:b", "ray_remote_kwargs": {"num_cpus": -1}}, "ray_remote_kwargs.num_cpus", "greater than"),
        (
            {"entrypoint": "a:b", "ray_remote_kwargs": {"runtime_env": {}}},
            "ray_remote_kwargs.runtime_env",
            "known here",
        ),
        ({"entrypoint": "a:b", "ray_remote_kwargs": {"max_retries": -1}}, "ray_remote_kwargs.max_retries", "greater"),
    ],
)
def test_each_mistake_has_its_path_and_what_would_be_right(validation: Any, path: str, says: str) -> None:
    assert says in mistakes(validation)[f"trainer.validation.{path}"]


def test_it_is_for_training_functions() -> None:
    command = {"kind": "command", "command": ["./train"], "entrypoint": None}
    found = mistakes({"entrypoint": "a:b"}, **command)
    assert found == {"trainer.validation": "is for training functions; kind command validates by itself"}
    assert "is called validation here" in mistakes(None, validation_config={})["trainer.validation_config"]
