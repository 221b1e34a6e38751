"""What a sampler proposes can be enqueued, as JSON or YAML, and is then the same configuration."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from search.problem import Problem
from search.samplers import SamplerSpec
from search.space.conditions import Range
from search.space.configuration_key import key_of
from search.space.space import Params, Space
from search.study import Study, propose
from service.specification.documents import read_document
from service.specification.enqueued_params import parse_enqueued
from tests.conftest import examples

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")]


def enqueued(space: Space, body: str) -> Params:
    [params] = parse_enqueued(read_document(body.encode(), is_json=False))
    assert space.mistakes_in(params) == []
    return params


@given(data=st.data(), sampler=st.sampled_from(["random", "tpe", "qmc", "cmaes", "nsga2", "brute_force"]))
@examples(60)
def test_a_proposal_is_known_again(data: st.DataObject, draws: Any, sampler: str) -> None:
    space = data.draw(draws.forbidden(data.draw(draws.spaces(finite=True if sampler == "brute_force" else None))))
    params = propose(Study(Problem(space, ("minimize",)), SamplerSpec(sampler=sampler), 7), [], 0)
    for body in (json.dumps({"params": params}), yaml.safe_dump({"params": params})):
        assert key_of(space, enqueued(space, body)) == key_of(space, params)


@given(low=st.integers(-20, 20), step=st.integers(1, 20), count=st.integers(0, 9))
def test_a_step_is_known_again_as_the_sum_of_binary_fractions(low: int, step: int, count: int) -> None:
    tenths = {"low": low / 10, "high": (low + count * step) / 10, "step": step / 10}
    space = Space.model_validate({"x": {"type": "float", **tenths}})
    for index in range(count + 1):
        summed = enqueued(space, json.dumps({"params": {"x": low / 10 + index * (step / 10)}}))
        assert key_of(space, summed) == key_of(space, {"x": (low + index * step) / 10})


@given(low=st.integers(-20, 20), step=st.integers(1, 20), count=st.integers(1, 9))
def test_the_sum_of_binary_fractions_meets_the_ranges_that_its_step_meets(low: int, step: int, count: int) -> None:
    """As the end of a range of `forbid` and of `when`, and just outside it."""
    end, before = (low + count * step) / 10, (low + (count - 1) * step) / 10
    x = {"type": "float", "low": low / 10, "high": end, "step": step / 10}
    child = {"type": "int", "low": 1, "high": 1}
    summed = low / 10 + count * (step / 10)
    as_end = [({name: bound}, True) for name in ("min", "max") for bound in (end, summed)]
    for bounds, is_met in (*as_end, ({"max": before}, False)):
        conditional = Space.model_validate({"x": x, "child": {**child, "when": {"x": bounds}}})
        forbidding = Space.model_validate({"x": x}).without([{"x": Range.model_validate(bounds)}])
        for value in (end, summed):
            assert conditional.mistakes_in({"x": value} | ({"child": 1} if is_met else {})) == []
            assert (forbidding.mistakes_in({"x": value}) != []) == is_met
        left = forbidding.configurations
        assert (end not in [left[index]["x"] for index in range(left.size)]) == is_met
