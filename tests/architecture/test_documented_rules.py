"""The table of the stopping rules has each of their options, with the default of the code."""

import json
from collections.abc import Iterator

import pytest

from search.early_stopping import RULES
from search.early_stopping.rule import StoppingRule
from search.early_stopping.rules.wrappable_rules import PLUGINS
from tests.architecture.documented_tables import code_in, rows_under

PAGE, HEADING = "concepts/early-stopping.md", "## Rules"
ELSEWHERE = {"pbt", "auto"}
"""Rules whose options have a section of their own, or that have none."""


def documented() -> dict[str, str]:
    """The cell with the options, by rule."""
    return {code_in(row["rule"])[0]: row["options"] for row in rows_under(PAGE, HEADING)}


def rules() -> Iterator[str]:
    own = {name: kind for name, kind in RULES.items() if name not in PLUGINS.kinds}
    yield from (name for name, kind in own.items() if issubclass(kind, StoppingRule) and name not in ELSEWHERE)


def described(name: str) -> Iterator[str]:
    """How the cell of a rule must begin what it says of each option: `` `name` default ``."""
    for option, field in RULES[name].model_fields.items():
        if option in StoppingRule.model_fields:
            continue
        has_number = isinstance(field.default, int | float)
        yield f"`{option}` {_written(field.default)}" if has_number else f"`{option}`"


def _written(default: float) -> str:
    return json.dumps(default) if isinstance(default, bool) else f"{default:g}"


@pytest.mark.parametrize("rule", list(rules()))
def test_each_option_of_a_rule_is_documented_with_its_default(rule: str) -> None:
    rows = documented()
    assert rule in rows, f"docs/{PAGE}, {HEADING}: add a row for {rule}"
    shared = [rows[other] for other in code_in(rows[rule].partition("the options of ")[2])]
    cells = " ".join([rows[rule], *shared])
    missing = [text for text in described(rule) if text not in cells]
    assert not missing, f"docs/{PAGE}, {HEADING}: the row of {rule} lacks {', '.join(missing)}"
