"""What the client expects in the service's answers, by which it knows those of other programs. Needs no Ray."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trainer import wire
from trainer.client.answers import ANSWER, ASSIGNMENT, FINISHED, HELD_ATTEMPTS, PROMISES

OPENAPI = Path(__file__).parents[3] / "docs/reference/openapi.json"

MODELS: dict[type[BaseModel], Any] = {
    wire.Answer: ANSWER,
    wire.Finished: FINISHED,
    wire.HeldAttempts: HELD_ATTEMPTS,
    wire.Assignment: ASSIGNMENT,
}


@pytest.mark.parametrize("model", MODELS)
def test_the_fields_of_a_promise_are_fields_of_the_wire(model: type[BaseModel]) -> None:
    assert set(MODELS[model]) <= set(model.model_fields)


@pytest.mark.parametrize("verb", PROMISES)
def test_each_promise_is_that_of_the_services_description(verb: str) -> None:
    described = json.loads(OPENAPI.read_text())["paths"]
    method = "get" if verb == "attempts" else "post"
    noun = "/v1/agents/{name}" if verb in {"claim", "attempts", "deletions", "leave"} else "/v1/trials/{trial}"
    answers = described[f"{noun}/{verb}"][method]["responses"]
    assert ("204" in answers) == PROMISES[verb].may_be_empty
    schemas = [answer["content"]["application/json"]["schema"] for code, answer in answers.items() if code == "200"]
    promised = [model.__name__ for model, fields in MODELS.items() if fields is PROMISES[verb].fields]
    assert [schema["$ref"].rpartition("/")[2] for schema in schemas] == promised
