"""Specs: what is parsed is what is stored."""

from pathlib import Path
from typing import Any

import pytest

from search.plugins import STORED
from service.errors import Invalid
from service.specification.documents import read_document
from service.specification.models import ExperimentSpec
from service.specification.parser import parse_spec
from service.specification.stored_spec import parse_stored_spec
from tests.conftest import a_spec

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/experiment.yaml"))
CONDITIONAL: dict[str, Any] = {
    "space": {
        "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        "momentum": {"type": "float", "low": 0, "high": 1, "when": {"optimizer": "sgd"}},
        "layers": {"type": "int", "low": 1, "high": 4},
    },
    "forbid": [{"optimizer": "sgd", "layers": 4}],
    "config": {"epochs": 3, "scale": 1.0},
    "objectives": [{"metric": "loss", "direction": "minimize"}, {"metric": "size", "direction": "minimize"}],
    "constraints": [{"metric": "latency", "max": 20}],
    "search": {"sampler": "random", "seed": 7.0},
    "early_stopping": {"rule": "asha", "metric": "loss"},
    "enqueue": [{"optimizer": "adamw", "layers": 2}],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_a_stored_example_is_the_spec_that_was_submitted(path: Path) -> None:
    assert_stored_unchanged(parse_spec(read_document(path.read_bytes(), is_json=False)))


def test_a_stored_spec_is_the_spec_that_was_submitted() -> None:
    """The service keeps the submitted spec in its cache instead of parsing the stored one."""
    assert_stored_unchanged(parse_spec(a_spec(**CONDITIONAL)))


def assert_stored_unchanged(spec: ExperimentSpec) -> None:
    stored = ExperimentSpec.model_validate(spec.model_dump(mode="json"), context=STORED)
    assert stored == spec
    assert stored.model_dump(mode="json") == spec.model_dump(mode="json")
    assert stored.space.forbidden == spec.space.forbidden


@pytest.mark.parametrize("seconds", [60, 59])
def test_a_trial_is_killed_after_its_time_limit_and_not_before(seconds: float) -> None:
    limits = {"max_trial_seconds": 60, "kill_trial_after_seconds": seconds}
    with pytest.raises(Invalid, match=r"limits.kill_trial_after_seconds.*must be more than max_trial_seconds \(60\)"):
        parse_spec(a_spec(limits=limits))
    assert parse_spec(a_spec(limits={"kill_trial_after_seconds": seconds})).limits.kill_trial_after_seconds == seconds


def test_a_step_metric_without_a_name_is_refused() -> None:
    with pytest.raises(Invalid, match="step_metric: must be the name of a metric"):
        parse_spec(a_spec(step_metric=""))


@pytest.mark.parametrize(
    "of_earlier_version", [{"step_metric": ""}, {"trainer": {"kind": "external", "env": {"A=B": "1"}}}]
)
def test_a_stored_spec_is_not_checked_again(of_earlier_version: dict[str, Any]) -> None:
    stored = parse_spec(a_spec()).model_dump(mode="json")
    assert parse_stored_spec(stored | of_earlier_version)
