"""The command line names its commands where the service's messages name HTTP calls."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import service
import trainer
from service.cli.client.answers import Refused
from service.cli.client.commands_in_messages import with_commands

CALL = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) /v1/")
NO_MESSAGES = ("service/api/openapi", "service/cli", "trainer/client")


def texts_with_calls() -> Iterator[str]:
    for package in (service, trainer):
        root = Path(str(package.__file__)).parent
        for file in sorted(root.rglob("*.py")):
            if not str(file.relative_to(root.parent)).startswith(NO_MESSAGES):
                yield from filter(CALL.search, texts_in(ast.parse(file.read_text())))


def texts_in(tree: ast.Module) -> Iterator[str]:
    """The texts of the code, with 7 for what a format string inserts, but no docstrings."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(map(id, node.values))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def test_every_call_that_a_message_of_the_service_names_has_a_command() -> None:
    found = list(texts_with_calls())
    assert len(found) >= 8
    assert [text for text in found if CALL.search(with_commands(text))] == []


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no experiment 'x'; GET /v1/experiments lists them", "no experiment 'x'; `paceline ls` lists them"),
        ("GET /v1/trials/t-1/checkpoints lists them", "`paceline checkpoints t-1` lists them"),
        ("to continue: PATCH /v1/experiments/mine", "to continue: `paceline change mine --set FIELD=VALUE`"),
        (
            'raise it: PATCH /v1/experiments/mine {"limits": {"max_trials": 9}, "priority": 1}',
            "raise it: `paceline change mine --set limits.max_trials=9 --set priority=1`",
        ),
        ("as `POST /v1/packages` returns it", "as `paceline submit` returns it"),
        ("a sentence without a call", "a sentence without a call"),
    ],
)
def test_a_call_becomes_a_command(message: str, shown: str) -> None:
    assert with_commands(message) == shown


def test_an_error_of_the_service_is_shown_with_commands() -> None:
    problem = {"detail": "none; GET /v1/experiments lists them"}
    assert str(Refused(problem)) == "none; `paceline ls` lists them"
    mistake = {"path": "warm_start", "message": "none; GET /v1/experiments lists them"}
    assert Refused(problem | {"errors": [mistake]}).errors == ["warm_start: none; `paceline ls` lists them"]


@pytest.mark.parametrize("patch", ['{"a": 1} and {b}', "{…}", "{}"])
def test_a_patch_that_cannot_be_read_becomes_a_placeholder(patch: str) -> None:
    assert "`paceline change x --set FIELD=VALUE`" in with_commands(f"PATCH /v1/experiments/x {patch}")
