"""Only `trainer/ray_train` uses what Ray does not promise to keep, and each such name has a test of its own.

A private name that Ray renames should fail in a test with that name in its title, and not in a user's experiment.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
INTERNALS = ROOT / "trainer" / "ray_train"
TESTS_OF_INTERNALS = ROOT / "tests" / "trainer" / "ray_train"

PRIVATE_MODULE = re.compile(r"^ray(\.\w+)*(\._\w+|\.core\.generated)")
"""A module of Ray with a private part in its path, such as `ray._private` and `ray.train.v2._internal`."""


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def private_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of each import of a private part of Ray; the name is empty for the module itself."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "ray":
                for alias in names:
                    if PRIVATE_MODULE.match(module) or PRIVATE_MODULE.match(f"{module}.{alias.name}"):
                        yield module, alias.name
            case ast.Import(names=names):
                for alias in names:
                    if PRIVATE_MODULE.match(alias.name):
                        yield alias.name, ""
            case ast.Constant(value=str(text)) if PRIVATE_MODULE.fullmatch(text) or _is_private_path(text):
                yield text, ""


def _is_private_path(text: str) -> bool:
    """A module given by name, as to `import_module`."""
    return re.fullmatch(r"ray(\.\w+)+", text) is not None and PRIVATE_MODULE.match(text) is not None


PUBLIC = {"_exit", "_current_frames"}
"""Documented in spite of their names: `os._exit` and `sys._current_frames`."""


def private_attributes(tree: ast.AST) -> Iterator[str]:
    """Each attribute with a leading underscore that is not the own one of `self`, `cls` or `super()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*|_[A-Z]\w*", node.attr):
            owner = node.value
            is_own = isinstance(owner, ast.Name) and owner.id in {"self", "cls"}
            is_supers = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
            if not is_own and not is_supers and node.attr not in PUBLIC:
                yield node.attr


def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", ["trainer", "service", "search"])
def test_only_one_folder_uses_rays_internals(folder: str) -> None:
    elsewhere = [path for path in sources(folder) if not path.is_relative_to(INTERNALS)]
    assert elsewhere
    found = {str(path.relative_to(ROOT)): list(private_imports(parsed(path))) for path in elsewhere}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_trainer_uses_no_private_attribute_of_another_object_elsewhere() -> None:
    elsewhere = [path for path in sources("trainer") if not path.is_relative_to(INTERNALS)]
    found = {str(path.relative_to(ROOT)): list(private_attributes(parsed(path))) for path in elsewhere}
    assert {path: names for path, names in found.items() if names} == {}


def test_each_internal_that_is_used_is_named_in_a_test() -> None:
    tested = "".join(path.read_text(encoding="utf-8") for path in TESTS_OF_INTERNALS.glob("test_ray_*_internals.py"))
    trees = {str(path.relative_to(INTERNALS)): parsed(path) for path in INTERNALS.rglob("*.py")}
    used = {(file, name or module) for file, tree in trees.items() for module, name in private_imports(tree)}
    used |= {(file, name) for file, tree in trees.items() for name in private_attributes(tree)}
    assert len(used) > 20
    assert any(file.startswith("processes/") for file, _ in used)
    assert sorted((file, name) for file, name in used if not re.search(rf"\b{re.escape(name)}\b", tested)) == []


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from ray._private import state", ["ray._private"]),
        ("from ray import _private", ["ray"]),
        ("from ray.train.v2._internal.execution import context", ["ray.train.v2._internal.execution"]),
        ("import ray.train._internal.utils", ["ray.train._internal.utils"]),
        ("import_module('ray.train._internal.utils')", ["ray.train._internal.utils"]),
        ("from ray.core.generated.gcs_pb2 import A", ["ray.core.generated.gcs_pb2"]),
        ("from ray.train import Checkpoint", []),
        ("import ray.train.torch", []),
    ],
)
def test_each_private_use_in_the_samples_is_found(code: str, names: list[str]) -> None:
    assert [module for module, _ in private_imports(ast.parse(code))] == names
