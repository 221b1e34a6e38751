"""An unknown field is answered with the one that is meant, or with those that exist at its place."""

import time
from collections.abc import Mapping
from typing import Any

import optuna
import pytest

from search.early_stopping import RULES
from search.names_elsewhere import NO_RULE_OPTIONS, RULE_OPTIONS, called_here
from search.names_elsewhere import RULES as RULE_NAMES
from search.names_elsewhere import SAMPLERS as SAMPLER_NAMES
from search.samplers import SAMPLERS
from service.errors import Invalid
from service.specification.hints.known_fields import known_fields
from service.specification.parser import parse_spec
from tests.conftest import a_spec

FLOAT = {"type": "float", "low": 0, "high": 1}
SPEC: dict[str, Any] = a_spec(
    space={"x": {**FLOAT, "prior": {"value": 0.1}}, "y": {"type": "categorical", "choices": ["a"]}},
    constraints=[{"metric": "size", "max": 5}],
    limits={"no_improvement": {"trials": 3}},
)
ANY_NUMBER = "any number of trials is limits.max_trials: null, beside another limit such as limits.max_seconds"
WITHOUT_COUNTERPART = {"BaseSampler", "BaseGASampler", "PartialFixedSampler", "BasePruner"}
CLASSES_OF_OPTUNA = {*optuna.samplers.__all__, *optuna.pruners.__all__} - WITHOUT_COUNTERPART


def mistakes(**fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        parse_spec(SPEC | fields)
    return {mistake.where: mistake.message for mistake in refused.value.mistakes}


@pytest.mark.parametrize(
    ("parent", "known"),
    [
        (("space", "x"), "high, log, low, prior, step, type, when"),
        (("space", "y"), "choices, prior, type, when"),
        (("space", "x", "prior"), "confidence, value"),
        (("objectives", 0), "direction, metric, report, target"),
        (("constraints", 0), "max, metric, min"),
        (("limits", "no_improvement"), "min_delta, trials"),
        (("trainer", "secrets", "TOKEN"), "from_agent_env, from_agent_file"),
        (("space",), ""),
        (("tags",), ""),
        (("space", "z", "prior"), ""),
    ],
)
def test_the_known_fields_are_those_of_the_object_at_the_place(parent: tuple[str | int, ...], known: str) -> None:
    assert ", ".join(known_fields(parent, SPEC)) == known


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"space": {"x": {**FLOAT, "lo": 1}}}, "space.x.lo", "unknown field; did you mean low?"),
        ({"limits": {"max_trails": 1}}, "limits.max_trails", "unknown field; did you mean max_trials?"),
        (
            {"constraints": [{"metric": "y", "max": 1, "low": 1}]},
            "constraints.0.low",
            "unknown field; known here: max, metric, min",
        ),
        ({"space": {"x": {"type": "float", "min": 0, "max": 1}}}, "space.x.min", "is called low here"),
        (
            {"objectives": [{"metric": "y", "mode": "min"}]},
            "objectives.0.mode",
            "is called direction here: minimize or maximize",
        ),
        (
            {"early_stopping": {"rule": "asha", "max_stp": 9}},
            "early_stopping.max_stp",
            "unknown option; did you mean max_step?",
        ),
        ({"early_stopping": {"rule": "asha", "max_t": 9}}, "early_stopping.max_t", "is called max_step here"),
        (
            {"early_stopping": {"rule": "hyperband", "grace_period": 9}},
            "early_stopping.grace_period",
            "is called min_step here",
        ),
        (
            {"early_stopping": {"rule": "asha", "brackets": 1}},
            "early_stopping.brackets",
            "is not an option here: {rule: hyperband} has several brackets, which follow from max_step",
        ),
        (
            {"early_stopping": {"rule": "median", "grace_period": 9}},
            "early_stopping.grace_period",
            "is called n_warmup_steps here",
        ),
        (
            {"early_stopping": {"rule": "pbt", "quantile_fraction": 0.2}},
            "early_stopping.quantile_fraction",
            "is called quantile here",
        ),
        ({"early_stopping": {"type": "asha"}}, "early_stopping.type", "is called rule here, as in {rule: asha}"),
        ({"num_samples": 9}, "num_samples", "is called limits.max_trials here"),
        ({"num_samples": -1}, "num_samples", f"is called limits.max_trials here; {ANY_NUMBER}"),
        ({"n_trials": None}, "n_trials", f"is called limits.max_trials here; {ANY_NUMBER}"),
        ({"limits": {"n_trials": None}}, "limits.n_trials", f"is called max_trials here; {ANY_NUMBER}"),
        ({"limits": {"max_trials": -1}}, "limits.max_trials", f"Input should be greater than 0; {ANY_NUMBER}"),
        ({"limits": {"max_trials": "inf"}}, "limits.max_trials", f"must be a number, not text; {ANY_NUMBER}"),
        ({"metric": "y"}, "metric", "is part of objectives here, as in [{metric: loss, direction: minimize}]"),
        (
            {"objectives": [{"metric": "y", "direction": "minimize", "scope": "all"}]},
            "objectives.0.scope",
            "is called report here: newest or best",
        ),
        ({"limits": {"n_jobs": 2}}, "limits.n_jobs", "is called parallelism here"),
        ({"failures": {"max_failures": 2}}, "failures.max_failures", "is called max_retries here"),
        ({"space": {"x": {**FLOAT, "q": 0.1}}}, "space.x.q", "is called step here"),
        ({"entrypoint": "train:f"}, "entrypoint", "unknown field; did you mean trainer.entrypoint?"),
        (
            {"search": {"n_startup_trials": 3}},
            "search.n_startup_trials",
            "is an option of tpe: write it under search.options",
        ),
        (
            {"search": {"sampler": "random", "n_startup_trials": 3}},
            "search.n_startup_trials",
            "unknown field; known here: curve_score, options, repeats, sampler, seed, warm_start",
        ),
    ],
)
def test_an_unknown_field_is_answered_with_the_one_that_is_meant(
    fields: dict[str, Any], path: str, message: str
) -> None:
    assert mistakes(**fields)[path] == message


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        (
            {"space": {"x": {**FLOAT, "type": "loguniform"}}},
            "space.x.type",
            "must be one of 'float', 'int', 'categorical', not 'loguniform': write {type: float, log: true}",
        ),
        (
            {"space": {"x": {"grid_search": [1, 2]}}},
            "space.x.type",
            "is required: in place of grid_search write {type: categorical, choices: […]}, and search: {sampler: grid}",
        ),
        (
            {"early_stopping": {"rule": "ASHAScheduler"}},
            "early_stopping.rule",
            "unknown rule 'ASHAScheduler'; did you mean asha?",
        ),
        (
            {"early_stopping": {"rule": "MedianPruner"}},
            "early_stopping.rule",
            "unknown rule 'MedianPruner'; did you mean median?",
        ),
        ({"early_stopping": "median"}, "early_stopping", "must be an object such as {rule: median}"),
        (
            {"search": {"sampler": "NSGAIISampler"}},
            "search.sampler",
            "unknown sampler 'NSGAIISampler'; did you mean nsga2?",
        ),
        ({"search": "optuna"}, "search", "must be auto, or an object such as {sampler: tpe}"),
        ({"search": "random"}, "search", "must be auto, or an object such as {sampler: random}"),
        ({"search": "a\nb"}, "search", "must be auto, or an object such as {sampler: tpe}"),
    ],
)
def test_a_name_of_another_tuner_is_answered_with_ours(fields: dict[str, Any], path: str, message: str) -> None:
    assert mistakes(**fields)[path] == message


@pytest.mark.parametrize("name", [*SAMPLERS, *RULES])
def test_a_name_of_ours_is_no_other_tuners_name_for_another_thing(name: str) -> None:
    names: Mapping[str, str] = SAMPLER_NAMES if name in SAMPLERS else RULE_NAMES
    assert called_here(name, names, [*SAMPLERS, *RULES]) in (name, None)


def test_each_sampler_and_pruner_of_optuna_is_known_by_its_class() -> None:
    samplers = {name for name in CLASSES_OF_OPTUNA if called_here(name, SAMPLER_NAMES, [*SAMPLERS])}
    pruners = {name for name in CLASSES_OF_OPTUNA if called_here(name, RULE_NAMES, [*RULES])}
    assert {name for name in CLASSES_OF_OPTUNA if name.endswith("Sampler")} <= samplers
    assert {name for name in CLASSES_OF_OPTUNA if name.endswith("Pruner")} <= pruners


@pytest.mark.parametrize("field", ["sampler", "rule", "option"])
def test_an_unknown_name_of_megabytes_is_answered_in_a_moment(field: str) -> None:
    name, before = "tpe" * 1_000_000, time.process_time()
    match field:
        case "sampler":
            mistakes(search={"sampler": name})
        case "rule":
            mistakes(early_stopping={"rule": name})
        case _:
            mistakes(early_stopping={"rule": "asha", name: 1})
    assert time.process_time() - before < 0.2


def test_what_other_tuners_names_stand_for_exists() -> None:
    assert {*SAMPLER_NAMES.values()} <= {*SAMPLERS}
    assert {*RULE_NAMES.values()} <= {*RULES}
    options = {option for rule in RULES.values() for option in rule.model_fields}
    assert {ours for meant in RULE_OPTIONS.values() for ours in meant} <= options
    assert not {*RULE_OPTIONS, *NO_RULE_OPTIONS} & options


def test_a_parameter_that_depends_on_itself_is_one_mistake() -> None:
    found = mistakes(space={"x": {**FLOAT, "when": {"x": 1}}})
    assert found == {"space.x.when": "a parameter cannot depend on itself: x -> x"}
