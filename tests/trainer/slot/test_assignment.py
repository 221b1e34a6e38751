"""The slot's typed assignment agrees with the wire's, which it cannot import on the cluster."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fake_service import FakeService
from trainer import wire
from trainer.slot.assignment import Assignment, TrainerSpec

TRAINER = {
    "kind": "xgboost",
    "entrypoint": "train:train_fn",
    "scaling": {"num_workers": 3, "use_gpu": True},
    "env": {"A": "b"},
    "secrets": {"C": {"from_agent_env": "D"}},
    "reuse_workers": 7,
}


def assignment(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    with FakeService(str(tmp_path)).serving() as service:
        return service.assign(service.add_trial(TRAINER, {"lr": 0.1}, **fields))


def test_every_value_comes_from_the_wire_under_its_name(tmp_path: Path) -> None:
    given = {
        "resume": {"uri": "/s/1/c", "step": 3},
        "keep_checkpoints": 2,
        "earlier_checkpoints": ["/s/1/c"],
        "earlier_runs": ["x-1"],
        "max_seconds": 9.0,
        "stop_grace_seconds": 4.0,
        "system_metrics_seconds": 5.0,
    }
    body = assignment(tmp_path, **given)
    found = dataclasses.asdict(Assignment.from_json(body))
    assert found.pop("lease_token") == body["lease"]["token"]
    assert found.pop("lease_seconds") == body["lease"]["seconds"]
    assert found.pop("resume") == "/s/1/c"
    assert found.pop("trainer") == body["trainer"]
    for name, value in found.items():
        assert (list(value) if isinstance(value, tuple) else value) == body[name], name


def test_the_trainer_has_all_fields_of_the_wires() -> None:
    assert {field.name for field in dataclasses.fields(TrainerSpec)} == set(wire.Trainer.model_fields)


@pytest.mark.parametrize(
    "absent", ["resume", "earlier_checkpoints", "earlier_runs", "max_seconds", "system_metrics_seconds"]
)
def test_what_the_wire_has_a_default_for_may_be_absent(tmp_path: Path, absent: str) -> None:
    body = assignment(tmp_path)
    del body[absent]
    assert not getattr(Assignment.from_json(body), absent)


def test_a_field_of_a_later_version_is_ignored(tmp_path: Path) -> None:
    body = assignment(tmp_path)
    assert Assignment.from_json({**body, "later": 1}) == Assignment.from_json(body)
