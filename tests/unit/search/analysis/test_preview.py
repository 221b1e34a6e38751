"""The samples of a preview."""

import pytest

from search.analysis.preview import preview
from search.problem import Problem
from search.samplers import SamplerSpec
from search.space.space import Space
from search.study import Study

SPACE = Space.model_validate({"x": {"type": "int", "low": 0, "high": 3}})


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_preview_has_each_configuration_of_a_small_space_once(sampler: str) -> None:
    found = preview(Study(Problem(SPACE, ("minimize",)), SamplerSpec(sampler=sampler), 7), 8)
    assert sorted(int(str(params["x"])) for params in found.samples) == [0, 1, 2, 3]
    assert found.size == 4


def test_a_preview_repeats_configurations_if_the_search_does() -> None:
    study = Study(Problem(SPACE, ("minimize",)), SamplerSpec(sampler="random", repeats=True), 7)
    assert len(preview(study, 8).samples) == 8
