"""How an experiment names its sampler, and what it is told when it is wrong."""

from typing import Any

import pytest
from pydantic import ValidationError

from search.mistakes import listed
from search.samplers import SAMPLERS, SamplerSpec
from search.samplers.tpe import Tpe


@pytest.mark.parametrize(
    ("spec", "complaints"),
    [
        ({"sampler": "annealing"}, [f"sampler: unknown sampler 'annealing'; available: {listed(SAMPLERS)}"]),
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
def test_a_wrong_sampler_or_option_is_told_with_the_right_ones(spec: dict[str, Any], complaints: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        SamplerSpec.model_validate(spec)
    assert [f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in refused.value.errors()] == complaints
