"""What a user may say of a parameter's good values."""

from typing import Any

import pytest
from pydantic import ValidationError

from search.mistakes import mistakes_of
from search.space.space import Space

RATE = {"type": "float", "low": 1e-4, "high": 1.0, "log": True}
STEPPED = {"type": "float", "low": 0, "high": 1, "step": 0.1}
WIDTH = {"type": "int", "low": 16, "high": 256, "step": 16}
OPTIMIZER = {"type": "categorical", "choices": ["sgd", "adamw", 1]}


def complaints(parameter: dict[str, Any], prior: Any) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Space.model_validate({"p": {**parameter, "prior": prior}})
    return [str(mistake) for mistake in mistakes_of(refused.value)]


@pytest.mark.parametrize(
    ("parameter", "prior", "complaint"),
    [
        (RATE, {"value": 2}, "p.prior.value: must be between 0.0001 and 1, not 2"),
        (RATE, {"value": "fast"}, 'p.prior.value: must be a number, not "fast"'),
        (STEPPED, {"value": 0.25}, "p.prior.value: must be 0 plus a multiple of 0.1, not 0.25"),
        (WIDTH, {"value": 20}, "p.prior.value: must be 16 plus a multiple of 16, not 20"),
        (WIDTH, {"value": 32.0}, "p.prior.value: must be an integer, not 32.0"),
        (OPTIMIZER, {"value": "adam"}, 'p.prior.value: must be one of "sgd", "adamw", 1, not "adam"'),
        (OPTIMIZER, {"value": True}, 'p.prior.value: must be one of "sgd", "adamw", 1, not true'),
        (RATE, {"confidence": "low"}, "p.prior.value: is required"),
        (RATE, {"value": 0.1, "confidence": "sure"}, "p.prior.confidence: Input should be 'low', 'medium' or 'high'"),
        (RATE, {"value": 0.1, "width": 2}, "p.prior.width: unknown field"),
        ({**RATE, "low": 2}, {"value": 9}, "p.low: must be <= high, which is 1"),
    ],
)
def test_a_mistake_in_a_prior_is_reported_with_its_path(parameter: dict[str, Any], prior: Any, complaint: str) -> None:
    assert complaints(parameter, prior) == [complaint]


@pytest.mark.parametrize(
    ("parameter", "value"), [(RATE, 1e-3), (RATE, 1), (STEPPED, 0.1 + 0.2), (WIDTH, 32), (OPTIMIZER, 1)]
)
def test_a_prior_is_of_medium_confidence_and_survives_json(parameter: dict[str, Any], value: Any) -> None:
    space = Space.model_validate({"p": {**parameter, "prior": {"value": value}}})
    prior = space.root["p"].prior
    assert prior is not None
    assert (prior.value, prior.confidence) == (value, "medium")
    assert Space.model_validate_json(space.model_dump_json()) == space
