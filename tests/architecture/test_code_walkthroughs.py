"""docs/code-walkthroughs.md names functions that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"^ *\d+\. `(\S+\.py):(\S+)` — \S", re.MULTILINE)
STEPS = STEP.findall((ROOT / "docs" / "code-walkthroughs.md").read_text())


def names_in(tree: ast.Module | ast.ClassDef, prefix: str = "") -> set[str]:
    """The functions of a module, and the methods of its classes as `Class.method`."""
    found = set[str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(f"{prefix}{node.name}")
        elif isinstance(node, ast.ClassDef):
            found |= names_in(node, f"{prefix}{node.name}.")
    return found


def test_every_numbered_line_is_a_step() -> None:
    numbered = re.findall(r"^ *\d+\. .*$", (ROOT / "docs" / "code-walkthroughs.md").read_text(), re.MULTILINE)
    assert len(numbered) == len(STEPS) > 0


@pytest.mark.parametrize(("file", "function"), sorted(set(STEPS)))
def test_a_step_names_a_function_that_exists(file: str, function: str) -> None:
    assert function in names_in(ast.parse((ROOT / file).read_text()))
