"""What the kind of a trainer requires and excludes, and the placeholders of a command."""

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from service.errors import Invalid
from service.specification.changeable_fields import changed_spec
from service.specification.hints.names_in_ray_train import REASONS
from service.specification.parser import parse_spec
from service.specification.stored_spec import parse_stored_spec
from tests.conftest import a_spec
from trainer.command_template import filled_in
from trainer.wire import Scaling, TorchConfig, Trainer

SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
    "momentum": {"type": "float", "low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
}


def mistakes(trainer: dict[str, Any]) -> dict[str, str]:
    try:
        parse_spec(a_spec(space=SPACE, config={"epochs": 3}, trainer=trainer))
    except Invalid as invalid:
        return {".".join(map(str, one.path)): one.message for one in invalid.mistakes}
    return {}


def command(*argv: str, **more: Any) -> dict[str, Any]:
    return {"kind": "command", "command": list(argv), **more}


SCALING = "trainer.scaling"
LABELS = f"{SCALING}.label_selector"


def labels(selector: Any) -> dict[str, Any]:
    return {"entrypoint": "a:b", "scaling": {"num_workers": 2, "label_selector": selector}}


def reserving(resources: dict[str, float], **more: Any) -> dict[str, Any]:
    return {"entrypoint": "a:b", "scaling": {"resources_per_worker": resources, **more}}


@pytest.mark.parametrize(
    "trainer",
    [
        labels({"zone": "a", "example.com/disk": "!in(hdd, tape)"}),
        labels([{}, {"zone": "a"}]),
        command("sh", "run.sh", "{params.lr}", "{config.epochs}", "{config.lr}", "{params.momentum:0}"),
        command("awk", "{print $1}", "${HOME}", "{}", "{rank}"),
        command("./train", metrics={"stdout": [r"loss=(?P<loss>\S+)", r"(?P<name>\w+)=(?P<value>\S+)"]}),
        command("./train", metrics={"file": "metrics.jsonl"}),
        reserving({"CPU": 0, "memory": 1e9}),
        reserving({"CPU": 0}, use_gpu=True),
        reserving({"CPU": 0}, accelerator_type="A100"),
        {"kind": "external", "scaling": {"resources_per_worker": {"CPU": 0}}},
    ],
)
def test_trainers_that_are_right(trainer: dict[str, Any]) -> None:
    assert mistakes(trainer) == {}


NESTED = "(?P<a>" + "(?:" * 990 + ")" * 991


@pytest.mark.parametrize(
    ("trainer", "path", "says"),
    [
        ({"kind": "command"}, "trainer.command", "is required: the program and its arguments"),
        (command(), "trainer.command", "at least 1"),
        (command("a", entrypoint="train:train"), "trainer.entrypoint", "leave one out"),
        ({"kind": "torch", "entrypoint": "a:b", "command": ["a"]}, "trainer.command", "is for kind command"),
        ({"kind": "torch", "entrypoint": "a:b", "metrics": {}}, "trainer.metrics", "is for kind command"),
        (command("a", torch_config={}), "trainer.torch_config", "is for the kinds torch, lightning, transformers"),
        ({"entrypoint": "a:b", "torch_config": {"timeout_s": 0}}, "trainer.torch_config.timeout_s", "greater than"),
        (
            {"entrypoint": "a:b", "torch_config": {"backend": "no such"}},
            "trainer.torch_config.backend",
            "in lower case",
        ),
        ({"entrypoint": "a:b", "torch_config": {"init_method": "tcp"}}, "trainer.torch_config.init_method", "env://"),
        ({"entrypoint": "a:b", "scaling_config": {}}, "trainer.scaling_config", "is called scaling here"),
        ({"entrypoint": "a:b", "scaling": {"topology": "2x2"}}, "trainer.scaling.topology", "TPUs"),
        (
            {"entrypoint": "a:b", "scaling": {"bundle_label_selector": {}}},
            "trainer.scaling.bundle_label_selector",
            "is called label_selector",
        ),
        (labels({"zone": "a b"}), f"{LABELS}.zone", "`a`, `!a`, `in(a, b)` or `!in(a, b)`"),
        (labels([{}, {"zone": "in()"}]), f"{LABELS}.1.zone", "`a`, `!a`, `in(a, b)` or `!in(a, b)`"),
        (labels("zone=a"), LABELS, "must be an object"),
        (labels([{"zone": "a"}]), LABELS, "is a list of 1, and there are up to 2 workers"),
        (reserving({"CPU": 0}), f"{SCALING}.resources_per_worker", "reserves nothing, and Ray starts no such worker"),
        (reserving({"GPU": 0}), f"{SCALING}.resources_per_worker", "leave it out for 1 CPU"),
        (
            command("a", scaling={"resources_per_worker": {"CPU": 0, "disk": 0}}),
            f"{SCALING}.resources_per_worker",
            "reserves nothing",
        ),
        ({"kind": "torch"}, "trainer.entrypoint", "is required: module:function"),
        (command("a", "--{params.rate}"), "trainer.command.1", "no parameter 'rate'; it has: lr, optimizer, momentum"),
        (command("{config.steps}"), "trainer.command.0", "the config has no 'steps'"),
        (command("a", "{params.momentum}"), "trainer.command.1", "{params.momentum:0}"),
        (command("a", metrics={"stdout": ["loss=("]}), "trainer.metrics.stdout.0", "no regular expression"),
        (command("a", metrics={"stdout": [NESTED]}), "trainer.metrics.stdout.0", "no regular expression"),
        (command("a", metrics={"stdout": [r"(?P<a>b{%s})" % ("9" * 20)]}), "trainer.metrics.stdout.0", "no regular"),
        (command("a", metrics={"stdout": ["(?P<a>b)" * 501]}), "trainer.metrics.stdout", "at most 4,000 characters"),
        (command("a", metrics={"stdout": [r"loss=(\d)"]}), "trainer.metrics.stdout.0", "has no named group"),
        (command("a", metrics={"stdout": [r"(?P<name>\w)"]}), "trainer.metrics.stdout.0", "needs both groups"),
    ],
)
def test_each_mistake_has_its_path_and_what_would_be_right(trainer: dict[str, Any], path: str, says: str) -> None:
    assert says in mistakes(trainer)[path]


def test_a_trainer_that_an_earlier_version_has_accepted_is_read() -> None:
    stored = a_spec(trainer=reserving({"CPU": 0}, num_workers=1) | {"runtime_env": {"pip": ["cowsay=5.0"]}})
    spec = parse_stored_spec(stored)
    assert spec.trainer.scaling.resources_per_worker == {"CPU": 0}
    assert changed_spec(spec, {"limits": {"max_trials": 50}}).trainer == spec.trainer


def test_ray_gets_values_of_a_label_without_spaces() -> None:
    assert Scaling.model_validate({"label_selector": {"zone": "!in(a, b)"}}).label_selector == {"zone": "!in(a,b)"}


def test_values_are_filled_in_as_text_or_json() -> None:
    params = {"lr": 1e-05, "optimizer": "sgd", "nesterov": True}
    arguments = ["--lr={params.lr}", "{params.optimizer}{params.nesterov}", "{params.momentum:0.9}", "{config.epochs}"]
    assert filled_in(arguments, params, {**params, "epochs": 3}) == ["--lr=1e-05", "sgdtrue", "0.9", "3"]


@given(st.text(), st.text())
def test_values_are_not_searched_for_placeholders(argument: str, value: str) -> None:
    """And what is no placeholder stays as it is."""
    kept = re.sub(r"\{(params|config)\.", "", argument)
    assert filled_in([f"{kept}{{params.x}}"], {"x": value + "{params.x}"}, {}) == [f"{kept}{value}{{params.x}}"]


def test_names_of_ray_train_with_a_reason_are_no_fields_of_the_specification() -> None:
    models: dict[tuple[str, ...], type[BaseModel]] = {
        ("trainer",): Trainer,
        ("trainer", "scaling"): Scaling,
        ("trainer", "torch_config"): TorchConfig,
    }
    fields = {(*place, name) for place, model in models.items() for name in model.model_fields}
    assert not fields & REASONS.keys()


@pytest.mark.ray
@pytest.mark.slow  # importing Ray Train takes seconds
def test_every_field_of_ray_trains_configuration_is_taken_or_refused_with_a_reason() -> None:
    from ray.train import RunConfig, ScalingConfig  # noqa: PLC0415 - heavy
    from ray.train.torch import TorchConfig as RaysTorchConfig  # noqa: PLC0415 - heavy

    set_by_the_service, removed = {"name"}, {"sync_config", "verbose", "progress_reporter", "stop", "log_to_file"}
    for place, config, taken in (
        (("trainer",), RunConfig, Trainer.model_fields.keys() | set_by_the_service | removed),
        (("trainer", "scaling"), ScalingConfig, Scaling.model_fields.keys()),
        (("trainer", "torch_config"), RaysTorchConfig, TorchConfig.model_fields.keys()),
    ):
        names = {field.name for field in dataclasses.fields(config)}
        assert {name for name in names - taken if (*place, name) not in REASONS} == set()


@pytest.mark.parametrize(
    ("num_workers", "path", "says"),
    [
        (0, "num_workers", "greater than or equal to 1"),
        ("2", "num_workers", "'2' is text: write 2"),
        ([1, 2, 3], "num_workers", "[min, max] of an elastic group, as in [1, 4]"),
        ([4, 1], "num_workers", "min must not be more than max (1): write {min: 1, max: 4}"),
        ({"min": 3, "max": 2}, "num_workers", "min must not be more than max"),
        ([0, 2], "num_workers.min", "greater than or equal to 1"),
        ({"min": 1}, "num_workers.max", "is required"),
        ({"min": 1, "max": 2, "most": 3}, "num_workers.most", "unknown field"),
    ],
)
def test_the_mistakes_in_a_number_of_workers_say_what_would_be_right(num_workers: Any, path: str, says: str) -> None:
    found = mistakes({"entrypoint": "a:b", "scaling": {"num_workers": num_workers}})
    assert list(found) == [f"trainer.scaling.{path}"]
    assert says in found[f"trainer.scaling.{path}"]


@pytest.mark.parametrize("num_workers", [[1, 4], {"min": 2, "max": 2}])
@pytest.mark.parametrize("kind", ["torch", "jax", "tensorflow", "xgboost", "command"])
def test_every_kind_that_runs_on_ray_may_be_elastic(kind: str, num_workers: Any) -> None:
    trainer = command("./train") if kind == "command" else {"kind": kind, "entrypoint": "a:b"}
    scaling = {"num_workers": num_workers, "elastic_resize_monitor_interval_s": 30}
    assert mistakes(trainer | {"scaling": scaling}) == {}


def test_what_only_an_elastic_group_has_and_what_cannot_be_elastic() -> None:
    interval = {"elastic_resize_monitor_interval_s": 30}
    found = mistakes({"entrypoint": "a:b", "scaling": {"num_workers": 4} | interval})
    says = "is for an elastic group, as with num_workers: {min: 1, max: 4}; this one always has 4 workers"
    assert found == {"trainer.scaling.elastic_resize_monitor_interval_s": says}
    found = mistakes({"entrypoint": "a:b", "scaling": {"num_workers": 4, "max_workers": 2}})
    assert found == {"trainer.scaling": "max_workers (2) must not be less than num_workers"}
    found = mistakes({"entrypoint": "a:b", "scaling": {"num_workers": [1, 2], "max_workers": 3}})
    assert found == {"trainer.scaling": "max_workers must be absent: num_workers says it already (2)"}
    found = mistakes({"kind": "external", "scaling": {"num_workers": [1, 2]}})
    assert list(found) == ["trainer.scaling.num_workers"]


def test_a_conditional_parameter_needs_a_default_also_in_the_config() -> None:
    found = mistakes(command("train", "{config.momentum}", "{config.momentum:0}", "{config.epochs}", "{config.x}"))
    assert found == {
        "trainer.command.1": "{config.momentum}: not every configuration has it; "
        "give a default, as in {config.momentum:0}",
        "trainer.command.4": "{config.x}: the config has no 'x'",
    }


@pytest.mark.parametrize("name", ["", "A=B"])
def test_names_that_no_environment_variable_can_have_are_refused(name: str) -> None:
    [(_, message)] = mistakes({"entrypoint": "a:b", "env": {name: "x", "my.variable": "y"}}).items()
    assert "must be a variable's name: not empty, and without =" in message


def test_a_worker_with_a_gpu_needs_more_than_none() -> None:
    found = mistakes({"entrypoint": "a:b", "scaling": {"use_gpu": True, "resources_per_worker": {"GPU": 0}}})
    assert list(found) == ["trainer.scaling.resources_per_worker.GPU"]


@pytest.mark.parametrize(
    ("trainer", "path", "module"),
    [
        ({"entrypoint": "train.py:train_fn"}, "trainer.entrypoint", "train:train_fn"),
        ({"entrypoint": "./src/train.py:train_fn"}, "trainer.entrypoint", "src.train:train_fn"),
        ({"entrypoint": "src/train:train_fn"}, "trainer.entrypoint", "src.train:train_fn"),
        ({"entrypoint": "src.train.py:train_fn"}, "trainer.entrypoint", "src.train:train_fn"),
        (
            {"entrypoint": "a:b", "datasets": {"entrypoint": "src.data.py:make"}},
            "trainer.datasets.entrypoint",
            "src.data:make",
        ),
        (
            {"entrypoint": "a:b", "validation": {"entrypoint": "train.py:check"}},
            "trainer.validation.entrypoint",
            "train:check",
        ),
    ],
)
def test_an_entrypoint_names_a_module_and_not_a_file(trainer: dict[str, Any], path: str, module: str) -> None:
    assert mistakes(trainer) == {path: f"names a file, not a module: write {module}"}


@pytest.mark.parametrize("entrypoint", ["src/train.py:train_fn", "./src/train:train_fn"])
def test_an_entrypoint_with_a_path_is_answered_with_the_module(entrypoint: str) -> None:
    found = mistakes({"entrypoint": entrypoint})
    assert found == {"trainer.entrypoint": "names a file, not a module: write src.train:train_fn"}


def test_a_limit_in_gpu_hours_is_for_trials_that_reserve_gpus() -> None:
    def parse(**scaling: Any) -> None:
        parse_spec(a_spec(trainer={"kind": "external", "scaling": scaling}, limits={"max_gpu_hours": 10}))

    parse(use_gpu=True)
    parse(resources_per_worker={"GPU": 0.5})
    with pytest.raises(Invalid, match=r"limits.max_gpu_hours: counts the GPUs that trials reserve, and these reserve"):
        parse()
