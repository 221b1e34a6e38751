"""Tables in the documents have the numbers and names of the code."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from search.samplers.sampler_spec import SamplerSpec
from service.domain.repeated_failure import FAILURES_TO_GIVE_UP
from service.specification.enqueued_params import MAX_ENQUEUED
from service.specification.models import ExperimentSpec
from service.specification.preview import DEFAULT_SAMPLES, MAX_SAMPLES
from tests.architecture.documented_tables import DOCS, code_in, rows_under
from tests.architecture.openapi_snapshot import current
from trainer.agent.secret_sources import MAX_BYTES
from trainer.wire import Claim, Heartbeat, Reports, Trainer

pytestmark = pytest.mark.slow


def test_the_documented_failures_that_end_an_experiment_are_those_of_the_code() -> None:
    rows = rows_under("concepts/experiments-and-trials.md", "#### When the first failures are alike")
    documented = {code_in(row["`failure_kind`"])[0]: int(row["trials"]) for row in rows}
    assert documented == FAILURES_TO_GIVE_UP


def test_the_documented_limits_of_a_specification_are_those_of_the_code() -> None:
    rows = [
        row for part in ("## The search", "## How trials run") for row in rows_under("reference/specification.md", part)
    ]
    meanings = {row["field"]: row["meaning"] for row in rows}
    spec, search, trainer = (_properties(one) for one in (ExperimentSpec, SamplerSpec, Trainer))
    limits = {
        "`constraints`": f"up to {spec['constraints']['maxItems']} of",
        "`search.seed`": "below 2^32",
        "`search.warm_start`": f"up to {search['warm_start']['maxItems']} earlier",
        "`trainer.secrets`": f"Up to {trainer['secrets']['maxProperties']}, with values of up to {MAX_BYTES:,} bytes",
    }
    assert search["seed"]["anyOf"][0]["exclusiveMaximum"] == 2**32
    assert {field: text for field, text in limits.items() if text not in meanings[field]} == {}


def test_the_documented_limits_of_calls_are_those_of_the_code() -> None:
    rows = rows_under("reference/api.md", "## Trials") + rows_under("reference/api.md", "## Running trials yourself")
    meanings = {row["call"]: row["does"] for row in rows}
    most_reports = _properties(Reports)["reports"]["maxItems"]
    limits = {
        "`POST /v1/experiments/{x}/trials`": f"up to {MAX_ENQUEUED} of",
        "`POST /v1/trials/{t}/reports`": f"1 to {most_reports} reports",
        "`POST /v1/trials/{t}/heartbeat`": f"at most {_properties(Heartbeat)['wait_seconds']['maximum']:g}",
        "`POST /v1/agents/{name}/claim`": f"at most {_properties(Claim)['wait_seconds']['maximum']:g}",
    }
    assert {call: text for call, text in limits.items() if text not in meanings[call]} == {}


def test_the_documented_length_of_an_idempotency_key_is_that_of_the_code() -> None:
    parameters = current()["paths"]["/v1/experiments"]["post"]["parameters"]
    (key,) = (one["schema"] for one in parameters if one["name"] == "Idempotency-Key")
    text = f"An `Idempotency-Key` is a text of your own, of {key['minLength']} to {key['maxLength']} characters"
    assert text in (DOCS / "reference/api.md").read_text()


def test_the_documented_number_of_samples_is_that_of_the_code() -> None:
    assert f"from 0 to {MAX_SAMPLES}, by default {DEFAULT_SAMPLES}" in (DOCS / "concepts/search.md").read_text()


def _properties(model: type[BaseModel]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = model.model_json_schema()["properties"]
    return properties
