"""The table of the samplers' options has each of them, with the default and the limits of the code."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import optuna
import pytest

from search.samplers.registry import OWN_SAMPLERS, SAMPLERS
from search.samplers.sampler import Sampler
from tests.architecture.documented_tables import code_in, rows_under

pytestmark = pytest.mark.slow

OPTUNAS: Mapping[str, type[optuna.samplers.BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
    "cmaes": optuna.samplers.CmaEsSampler,
    "nsga2": optuna.samplers.NSGAIISampler,
    "nsga3": optuna.samplers.NSGAIIISampler,
    "qmc": optuna.samplers.QMCSampler,
    "grid": optuna.samplers.GridSampler,
    "brute_force": optuna.samplers.BruteForceSampler,
}
"""A sampler that Optuna does not have is not here."""
PAGE, HEADING = "concepts/search.md", "### Options of the samplers"
OPTUNAS_CROSSOVER = "uniform"
"""What Optuna takes where its own option, which is an object, is None."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "const")
Option = tuple[str, str]


def documented() -> dict[Option, dict[str, str]]:
    rows = rows_under(PAGE, HEADING)
    return {(sampler, code_in(row["option"])[0]): row for row in rows for sampler in code_in(row["sampler"])}


def options() -> Iterator[tuple[Option, type[Sampler]]]:
    for sampler in OWN_SAMPLERS:
        yield from (((sampler, name), SAMPLERS[sampler]) for name in SAMPLERS[sampler].model_fields)


def test_each_option_is_documented_with_its_default() -> None:
    defaults = {option: _default(kind, option[1]) for option, kind in options()}
    written = {option: json.loads(code_in(row["default"])[0]) for option, row in documented().items()}
    assert written == defaults, f"docs/{PAGE}, {HEADING}: correct the rows of these options"


def test_the_documented_limits_are_those_of_the_code() -> None:
    rows = documented()
    for option, kind in options():
        assert option in rows, f"docs/{PAGE}, {HEADING}: add a row for the option {option[1]} of {option[0]}"
        allowed, schema = rows[option]["allowed"], kind.model_json_schema()["properties"][option[1]]
        missing = [limit for limit in _limits(schema) if not re.search(rf"(?<![\d,]){limit}(?![\d,]*\d)", allowed)]
        assert not missing, f"{option}: {missing} in {allowed!r}"


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    """The least and the greatest value, each of a choice, and null."""
    for one in schema.get("anyOf", [schema]):
        yield from (str(one[bound]) for bound in BOUNDS if bound in one)
        yield from one.get("enum", ())
        if one.get("type") == "null":
            yield "null"


def test_the_documented_differences_from_optuna_are_all() -> None:
    both = {(option, kind) for option, kind in options() if option[0] in OPTUNAS}
    differing = {option for option, kind in both if _optunas_default(*option) != _default(kind, option[1])}
    assert {option for option, row in documented().items() if "Optuna: " in row["meaning"]} == differing


def _default(kind: type[Sampler], name: str) -> Any:
    return kind.model_fields[name].get_default(call_default_factory=True)


def _optunas_default(sampler: str, name: str) -> Any:
    default = inspect.signature(OPTUNAS[sampler].__init__).parameters[name].default
    return OPTUNAS_CROSSOVER if name == "crossover" and default is None else default
