"""docs/code-walkthroughs.md names functions that exist, those in the service in the order and nesting of a call."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.code_walkthroughs import Call, Function, profiled_service, walks

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "code-walkthroughs.md").read_text()
STEP = re.compile(r"^( *)\d+\. `(\S+\.py):(\S+)` — (\S.*)$", re.MULTILINE)
STEPS = STEP.findall(TEXT)
RECORDED = {"A report": "report", "A claim": "claim", "A submitted spec": "submit"}
"""The walk that `walks` records of the call which a section is about."""


@dataclass
class Step:
    """`below`: the indented steps."""

    file: str
    function: str
    below: list["Step"] = field(default_factory=list)

    def is_of(self, function: Function) -> bool:
        """Whether the step names the function, or the one in which it is defined, as `needs` for its dependency."""
        return function.file == self.file and f"{function.name}.".startswith(f"{self.function}.")


def steps_in_service(section: str) -> list[Step]:
    """The steps that every call takes in the service."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    path = [Step("", "")]
    for indent, file, function, what in STEP.findall(text):
        del path[len(indent) // 4 + 1 :]
        step = Step(file, function)
        if not (file.startswith("trainer/") or what.startswith("only ")):
            path[-1].below.append(step)
        path.append(step)
    return path[0].below


def unmatched(steps: Sequence[Step], calls: Sequence[Call], parent: Function | None = None) -> Iterator[str]:
    """The steps that have no call after that of the step before."""
    before: set[Function] = set()
    for step in steps:
        place = next((place for place, call in enumerate(calls) if fits(step, call, parent, before)), None)
        if place is None:
            yield f"{step.file}:{step.function}"
            continue
        found, calls = calls[place].function, calls[place + 1 :]
        yield from unmatched(step.below, calls, found)
        before.add(found)


def fits(step: Step, call: Call, parent: Function | None, before: set[Function]) -> bool:
    """Whether this is the step's call: in the parent, and in none of the steps before it.

    Except that coroutines call in other threads, and that what a coroutine or a generator calls may be a step after it:
    in a chain of middlewares, or in the context of a transaction.
    """
    is_below = parent is None or parent.is_resumed or parent in call.callers
    is_beside = not any(one in call.callers and not one.is_resumed for one in before)
    return step.is_of(call.function) and is_below and is_beside


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
    numbered = re.findall(r"^ *\d+\. .*$", TEXT, re.MULTILINE)
    assert len(numbered) == len(STEPS) > 0


@pytest.mark.parametrize(("file", "function"), sorted({(file, function) for _, file, function, _ in STEPS}))
def test_a_step_names_a_function_that_exists(file: str, function: str) -> None:
    assert function in names_in(ast.parse((ROOT / file).read_text()))


def test_the_steps_in_the_service_are_those_of_recorded_calls(tmp_path: Path) -> None:
    with profiled_service(tmp_path) as http:
        recorded = walks(http)
    for section, walk in RECORDED.items():
        assert [*unmatched(steps_in_service(section), recorded[walk])] == []
