"""A sampler that does not suit a problem says so."""

from typing import Any

import pytest

from search.problem import Problem
from search.samplers import SAMPLERS, SamplerSpec
from search.space.space import Space

A_FLOAT = {"type": "float", "low": 0, "high": 1}
ONE_OF_TWO = {"type": "categorical", "choices": ["x", "y"]}
UNDER_X = {**A_FLOAT, "when": {"c": "x"}}


@pytest.mark.parametrize(
    ("space", "facts", "needed"),
    [
        ({"n": {"type": "int", "low": 0, "high": 1}}, {"directions": ("minimize",) * 2}, "several objectives"),
        ({"n": {"type": "int", "low": 0, "high": 1}}, {"constrained": True}, "constraints"),
    ],
)
def test_a_sampler_names_what_it_does_not_support_and_which_samplers_do(
    space: dict[str, Any], facts: dict[str, Any], needed: str
) -> None:
    asked = Problem(Space.model_validate(space), **{"directions": ("minimize",), **facts})
    (mistake,) = SamplerSpec(sampler="cmaes").mistakes_with(asked)
    able = [
        name for name in SAMPLERS if name not in ("gp", "grid") and SamplerSpec(sampler=name).mistakes_with(asked) == []
    ]
    assert str(mistake).startswith(f"search.sampler: cmaes does not support {needed}; these samplers do: auto, tpe")
    assert all(name in str(mistake) for name in able)
    assert SamplerSpec().mistakes_with(asked) == []


CONDITIONAL = Space.model_validate({"a": A_FLOAT, "c": ONE_OF_TWO, "p": UNDER_X})
ABOUT_P = (
    "search.sampler: {} learns nothing about parameters under conditions, and draws p at random; tpe learns about them"
)
NO_SCORE = "search.curve_score: has no effect: {}"
COMPLETED_ONLY = (
    "search.sampler: {} learns from completed trials only, not from those that early stopping ends; tpe does"
)


@pytest.mark.parametrize(
    ("search", "facts", "expected"),
    [
        ({"sampler": "gp"}, {"max_trials": 500}, []),
        ({"sampler": "nsga2"}, {"directions": ("minimize",) * 2}, [ABOUT_P.format("nsga2")]),
        ({"sampler": "nsga3"}, {}, [ABOUT_P.format("nsga3")]),
        (
            {"sampler": "cmaes"},
            {},
            [
                ABOUT_P.format("cmaes")
                .replace("about p", "about categorical parameters and p")
                .replace("draws p", "draws c, p")
            ],
        ),
        ({"sampler": "tpe"}, {"prunes": True}, []),
        ({"sampler": "auto"}, {"prunes": True, "max_trials": 30}, []),
        ({"sampler": "random"}, {"prunes": True}, []),
        ({"sampler": "nsga2"}, {"prunes": True}, [ABOUT_P.format("nsga2"), COMPLETED_ONLY.format("nsga2")]),
        ({"sampler": "nsga2", "curve_score": True}, {"prunes": True}, [ABOUT_P.format("nsga2")]),
        (
            {"sampler": "nsga2"},
            {"prunes": True, "directions": ("minimize",) * 2},
            [ABOUT_P.format("nsga2"), COMPLETED_ONLY.format("nsga2")],
        ),
        ({"curve_score": True}, {"prunes": True}, []),
        ({"curve_score": True}, {}, [NO_SCORE.format("without early stopping trials rank by their values")]),
        (
            {"curve_score": True},
            {"prunes": True, "directions": ("minimize",) * 2},
            [NO_SCORE.format("with several objectives trials rank by their values")],
        ),
        (
            {"curve_score": True},
            {"prunes": True, "population": True},
            [NO_SCORE.format("the params of a population's trials change while they train")],
        ),
        (
            {"sampler": "random", "curve_score": True},
            {"prunes": True},
            [NO_SCORE.format("the sampler does not learn from trials")],
        ),
        ({"sampler": "nsga2"}, {"prunes": True, "population": True}, [ABOUT_P.format("nsga2")]),
        (
            {"sampler": "qmc", "warm_start": ["earlier"]},
            {},
            ["search.warm_start: has no effect on what qmc proposes: it does not learn from trials"],
        ),
    ],
)
def test_a_warning_names_what_the_sampler_does_not_learn_from(
    search: dict[str, Any], facts: dict[str, Any], expected: list[str]
) -> None:
    spec, problem = SamplerSpec.model_validate(search), Problem(CONDITIONAL, **{"directions": ("minimize",), **facts})
    assert [str(one) for one in spec.warnings_with(problem)] == expected


def test_cmaes_learns_from_pruned_trials_if_it_considers_them() -> None:
    problem = Problem(Space.model_validate({"a": A_FLOAT, "b": A_FLOAT}), ("minimize",), prunes=True)
    for considered, expected in ((True, []), (False, [COMPLETED_ONLY.format("cmaes")])):
        spec = SamplerSpec(sampler="cmaes", options={"consider_pruned_trials": considered}, curve_score=False)
        assert [str(one) for one in spec.warnings_with(problem)] == expected
