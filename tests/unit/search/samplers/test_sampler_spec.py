"""The sampler in an experiment's spec, and the messages about mistakes in it."""

from typing import Any

import pytest
from pydantic import ValidationError

from search.mistakes import listed
from search.problem import Problem
from search.samplers import SAMPLERS, SamplerSpec
from search.samplers.tpe import Tpe
from search.space.space import Space


@pytest.mark.parametrize(
    ("spec", "complaints"),
    [
        ({"sampler": "no_such"}, [f"sampler: unknown sampler 'no_such'; available: {listed(SAMPLERS)}"]),
        (
            {"options": {"startup": 3, "n_ei_candidates": 0}},
            [
                "options.n_ei_candidates: Input should be greater than or equal to 1",
                f"options.startup: unknown option; the options of tpe: {listed(Tpe.model_fields)}",
            ],
        ),
        ({"options": {"group": True, "multivariate": False}}, ["options.group: needs multivariate: true"]),
        (
            {"sampler": "random", "options": {"n": 3}},
            ["options.n: unknown option; the options of random: none"],
        ),
        ({"seed": -1}, ["seed: Input should be greater than or equal to 0"]),
        ({"pruner": "median"}, ["pruner: Extra inputs are not permitted"]),
    ],
)
def test_a_wrong_sampler_or_option_is_reported_with_the_available_ones(
    spec: dict[str, Any], complaints: list[str]
) -> None:
    with pytest.raises(ValidationError) as refused:
        SamplerSpec.model_validate(spec)
    assert [f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in refused.value.errors()] == complaints


@pytest.mark.parametrize(
    "many",
    [{"type": "int", "low": 1, "high": 10**9, "log": True}, {"type": "float", "low": 0, "high": 1, "step": 1e-9}],
)
def test_a_parameter_with_too_many_values_for_gp_is_refused_and_auto_avoids_gp(many: dict[str, Any]) -> None:
    space = Space.model_validate({"few": {"type": "int", "low": 0, "high": 10**6}, "many": many})
    problem = Problem(space, ("minimize",), max_trials=50)
    [mistake] = SamplerSpec(sampler="gp").mistakes_with(problem)
    assert str(mistake).startswith(
        "space.many: gp supports at most 2,000,000 values, and this parameter has 1,000,000,00"
    )
    assert SamplerSpec(sampler="auto").chosen_for(problem).name == "tpe"


def test_too_many_reference_points_are_refused() -> None:
    problem = Problem(Space.model_validate({"p": {"type": "int", "low": 0, "high": 9}}), ("minimize",) * 8)
    [mistake] = SamplerSpec(sampler="nsga3", options={"dividing_parameter": 100}).mistakes_with(problem)
    assert str(mistake).startswith("search.options.dividing_parameter: makes 26,075,972,546 reference points for 8 obj")
    assert SamplerSpec(sampler="nsga3", options={"dividing_parameter": 10}).mistakes_with(problem) == []


@pytest.mark.parametrize(
    ("sampler", "option", "most"),
    [("tpe", "n_ei_candidates", 10_000), ("cmaes", "popsize", 100_000), ("nsga3", "dividing_parameter", 100_000)],
)
def test_options_that_would_use_up_the_memory_are_refused(sampler: str, option: str, most: int) -> None:
    problem = Problem(Space.model_validate({"p": {"type": "float", "low": 0, "high": 9}}), ("minimize",))
    [mistake] = SamplerSpec(sampler=sampler, options={option: most + 1}).mistakes_with(problem)
    assert str(mistake) == f"search.options.{option}: must be at most {most:,}"
    assert SamplerSpec(sampler=sampler, options={option: most}).mistakes_with(problem) == []
