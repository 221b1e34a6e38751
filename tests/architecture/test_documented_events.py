"""docs/reference/events.md has each kind of event that the service appends, and no other.

The fields of their data are compared in the tests of the API, with each event that they read (`Api.events`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.domain.event_kinds import EVENT_KINDS, EXPERIMENT_MOVED, TRIAL_MOVED
from service.domain.statuses import ExperimentStatus, TrialStatus
from tests.documented_events import documented_events

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MOVED = {"EXPERIMENT_MOVED": EXPERIMENT_MOVED.values(), "TRIAL_MOVED": TRIAL_MOVED.values()}
"""The kinds of moves, as in `TRIAL_MOVED[to]`."""


def test_every_kind_of_event_is_documented_and_no_other() -> None:
    assert sorted(EVENT_KINDS) == sorted(documented_events())


def test_every_status_has_the_event_of_its_move() -> None:
    assert {status: f"experiment.{status}" for status in ExperimentStatus} == EXPERIMENT_MOVED
    assert {status: f"trial.{status}" for status in TrialStatus} == TRIAL_MOVED


def test_every_kind_of_event_is_appended_and_no_other() -> None:
    appended = {kind for path in (ROOT / "service").rglob("*.py") for kind in _kinds_in(path.read_text())}
    assert appended == set(EVENT_KINDS)


def _kinds_in(source: str) -> Iterator[str]:
    """The kinds in all calls of `append_event`."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "append_event":
                yield from _kinds_of(node.args[2], function)


def _kinds_of(argument: ast.expr, function: ast.FunctionDef) -> Iterator[str]:
    match argument:
        case ast.Constant(value=str(kind)):
            yield kind
        case ast.Subscript(value=ast.Name(id=moved)):
            yield from MOVED[moved]
        case ast.IfExp(body=one, orelse=other):
            yield from (*_kinds_of(one, function), *_kinds_of(other, function))
        case ast.Name(id=name):
            yield from _kinds_assigned(name, function)
        case _:
            pytest.fail(f"the kind of an event is neither a text nor a name: {ast.unparse(argument)}")


def _kinds_assigned(name: str, function: ast.FunctionDef) -> Iterator[str]:
    """`kind: EventKind = "…"`, `kind = "…"`, or `kind, … = "…", …`."""
    for node in ast.walk(function):
        match node:
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                yield from _kinds_of(value, function)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield from _kinds_of(value, function)
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=target), *_])], value=ast.Tuple(elts=[value, *_])):
                if target == name:
                    yield from _kinds_of(value, function)
            case _:
                pass


def test_the_kinds_of_a_call_are_found() -> None:
    source = """
def note(session, one, to):
    kind, other = "a.b", 1
    append_event(session, one, kind, {})
    append_event(session, one, "c.d" if to else "e", {})
    append_event(session, one, EXPERIMENT_MOVED[to], {})
"""
    assert {"a.b", "c.d", "e", "experiment.running"} <= set(_kinds_in(source))
