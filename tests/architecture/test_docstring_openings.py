"""A docstring has a subject or a verb, or names a thing: it does not go on from the name of what it describes.

`warnings_of`: "Of a repeated call too." is a riddle. "Returns the warnings of a repeated call as well." is a sentence.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED: dict[str, int] = {
    "service/api": 3,
    "service/domain": 2,
    "service/operations": 4,
    "service/runtime": 1,
    "service/store": 3,
}
"""How many such docstrings a package still has. The number may only fall: lower it when you have reworded some."""
OPENINGS = re.compile(r"(Of|Those|By|With|Without|The same|Also|That|Not) ")
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def openings(folder: Path) -> Iterator[str]:
    """The places of functions and classes below the folder, or in the file, with such a docstring; its first line."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)) and OPENINGS.match(text):
                yield f"{path}:{node.lineno} {node.name}: {text.splitlines()[0]}"


def packages() -> Iterator[str]:
    """Every folder with code of the project; the folders and files of the service one by one."""
    yield from ("search", "trainer", "benchmarks", "tests", "migrations", "images", "examples")
    yield from (
        f"service/{one.name}"
        for one in sorted((ROOT / "service").iterdir())
        if one.suffix == ".py" or any(one.rglob("*.py"))
    )


@pytest.mark.parametrize("package", list(packages()))
def test_no_more_docstrings_than_before_go_on_from_a_name(package: str) -> None:
    found, allowed = list(openings(ROOT / package)), ALLOWED.get(package, 0)
    assert len(found) <= allowed, "give these a subject or a verb, or name the thing:\n" + "\n".join(found)
    assert len(found) == allowed, f"fewer than before: set ALLOWED[{package!r}] to {len(found)}"


def test_an_opening_is_found(tmp_path: Path) -> None:
    code = 'def warnings_of() -> None:\n    """{}"""\n\n\nclass _Plan:\n    """{}"""\n'
    (tmp_path / "sample.py").write_text(code.format("Of a repeated call too.", "What a proposal comes from."))
    [found] = openings(tmp_path)
    assert found.endswith("sample.py:1 warnings_of: Of a repeated call too.")
