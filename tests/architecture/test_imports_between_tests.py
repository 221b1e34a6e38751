"""What several test modules use is in a module of its own, named by what it holds, not in one of the tests."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
STILL_IMPORTED = {
    "tests.api.deployment.test_silent_database",
    "tests.api.trials.test_retention",
    "tests.trainer.agent.test_agent_reconnects",
    "tests.trainer.agent.test_agent_shutdown",
}
"""Test modules whose fixtures others import. Each belongs in a conftest or a module of its own: shorten this only."""


def imported_tests() -> set[str]:
    found = set[str]()
    for path in ROOT.glob("tests/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests."):
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                found.update(one for one in names if one.rpartition(".")[2].startswith("test_") and _is_module(one))
    return found


def _is_module(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()


def test_no_test_module_is_imported_by_another() -> None:
    assert imported_tests() == STILL_IMPORTED
