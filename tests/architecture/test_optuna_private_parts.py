"""Optuna's private parts are used in two modules only, one of which needs torch, and do what the samplers rely on.

Optuna may rename or change them in any release: then a check here names what has to be adapted, and in production the
samplers use Optuna's public classes.
"""

import ast
import importlib
import inspect
import logging
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import search.samplers.optuna as adapter
from search.samplers.optuna import internals
from search.samplers.optuna.gp import sampler as gp_sampler
from search.samplers.optuna.internals_checks import CHECKS, usable
from search.samplers.optuna.tpe import history, sampler

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "examples", "migrations", "search", "service", "tests", "trainer")
ADAPTER = "search/samplers/optuna/"
INTERNALS = {"search/samplers/optuna/internals.py", "search/samplers/optuna/gp/sampler.py"}
REGISTRY = "examples/own_sampler/paceline_annealing/registry"
ALLOWED = {
    f"{REGISTRY}/samplers/annealing/__init__.py": "is a sampler by Optuna's public interface",
    "tests/unit/search/samplers/test_cmaes.py": "controls the random numbers of Optuna's sampler, to compare with it",
    "tests/unit/search/samplers/test_gp.py": "compares with places and thresholds in Optuna's private parts",
    "tests/unit/search/samplers/test_nsga.py": "controls the random numbers of Optuna's samplers, to compare with them",
    "tests/unit/search/samplers/test_parzen_estimator.py": "compares with Optuna's private estimator",
    "tests/mirror/runs/test_projection.py": "compares with the hypervolumes that Optuna plots",
    "benchmarks/harness/histories.py": "writes long histories directly into Optuna's tables, where its API takes hours",
    "benchmarks/recovery.py": "asks Optuna's storage, which knows a study only by its private id",
}

PUBLIC = {"_exit", "_replace"}
"""Documented names with an underscore: `os._exit`, and the methods of named tuples."""


def uses(tree: ast.Module) -> Iterator[str]:
    """What a module uses of Optuna's private parts, or derives from Optuna's classes."""
    names = _optuna_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=imported):
                yield from (f"import {one.name}" for one in imported if _is_private(one.name))
            case ast.ImportFrom(module=str(module), names=imported):
                full = [f"{module}.{one.name}" for one in imported]
                yield from (f"import {one}" for one in full if _is_private(one))
            case ast.Constant(value=str(text)) if re.fullmatch(r"optuna(\.\w+)*\._\w+(\.\w+)*", text):
                yield f"name {text!r}"
            case ast.ClassDef(name=name, bases=bases) if any(_root(base) in names for base in bases):
                yield f"class {name}"
            case ast.Attribute(attr=attribute, value=owner) if names and _is_private_attribute(attribute, owner):
                yield f"attribute {attribute}"


def _optuna_names(tree: ast.Module) -> set[str]:
    """The names by which a module knows Optuna, its modules, classes and functions, and the adapter's."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=imported):
                found |= {one.asname or "optuna" for one in imported if one.name.split(".")[0] == "optuna"}
            case ast.ImportFrom(module=str(module), names=imported) if _is_optuna(module):
                found |= {one.asname or one.name for one in imported}
    return found


def _is_optuna(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "optuna" or module.startswith("search.samplers.optuna")


def _is_private(name: str) -> bool:
    return _is_optuna(name) and any(part.startswith("_") for part in name.split("."))


def _is_private_attribute(attribute: str, owner: ast.expr) -> bool:
    is_own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
    is_super = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
    is_private = attribute.startswith("_") and not attribute.endswith("__") and attribute not in PUBLIC
    return is_private and not (is_own or is_super)


def _root(expression: ast.expr) -> str:
    while isinstance(expression, ast.Attribute | ast.Subscript):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def test_no_other_module_uses_optunas_private_parts() -> None:
    own = {*INTERNALS, Path(__file__).relative_to(ROOT).as_posix(), *ALLOWED}
    found = {name: list(uses(tree)) for name, tree in modules() if name not in own}
    private = {
        name: [one for one in used if not (one.startswith("class ") and name.startswith(ADAPTER))]
        for name, used in found.items()
    }
    assert {name: used for name, used in private.items() if used} == {}


def test_no_other_class_of_the_adapter_overrides_or_reads_a_private_name_of_optuna() -> None:
    found = {}
    for kind in _adapter_classes():
        theirs = {name for base in kind.__mro__ if base.__module__.startswith("optuna.") for name in _names_in(base)}
        private = {name for name in theirs if name.startswith("_") and not name.endswith("__")}
        found[kind.__qualname__] = private & _names_in(kind)
    assert {name: used for name, used in found.items() if used} == {}


def _names_in(kind: type) -> set[str]:
    """The methods that a class defines, and the attributes that it assigns or reads."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(kind))))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def _adapter_classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(adapter.__path__, f"{adapter.__name__}."):
        module = importlib.import_module(found.name)
        if module not in (internals, gp_sampler):
            classes = (kind for _, kind in inspect.getmembers(module, inspect.isclass))
            yield from (kind for kind in classes if kind.__module__ == found.name)


@pytest.mark.parametrize("name", ALLOWED)
def test_each_exception_is_still_needed(name: str) -> None:
    assert list(uses(ast.parse((ROOT / name).read_text())))


@pytest.mark.parametrize(
    "code",
    [
        "import optuna._transform",
        "from optuna import _transform",
        "from optuna.samplers._tpe import sampler as tpe",
        "from search.samplers.optuna.tpe.estimator import _float_kernels",
        "import optuna\nclass Mine(optuna.samplers.TPESampler): pass",
        "from optuna.samplers import TPESampler as Theirs\nclass Mine(Theirs): pass",
        "import optuna\noptuna.samplers.TPESampler()._rng",
        "from search.samplers.optuna.ask import ask\ndef f(sampler): return sampler._rng",
        "import_module('optuna._gp.acqf')",
    ],
)
def test_a_use_outside_of_the_adapter_is_found(code: str) -> None:
    assert list(uses(ast.parse(code)))


@pytest.mark.parametrize(
    "check", [pytest.param(check, id=f"{name} {index}") for name in CHECKS for index, check in enumerate(CHECKS[name])]
)
def test_each_private_part_does_what_is_relied_on(check: Callable[[], None]) -> None:
    check()


@pytest.fixture
def fresh() -> Iterator[None]:
    """`usable` keeps its answers."""
    usable.cache_clear()
    yield
    usable.cache_clear()


BROKEN: dict[str, tuple[str, Any, str, Any]] = {
    # sampler, owner, name, what stands there instead; None: it is gone, as an override that Optuna no longer calls
    "the optimizer is not restored": ("cmaes", internals.CmaEsHooks, "_restore_optimizer", None),
    "a new optimizer has drawn": ("cmaes", internals.CmaEsHooks, "_init_optimizer", None),
    "the random numbers of an optimizer": ("cmaes", internals.CmaEsHooks, "asked_again", lambda *_: 1 / 0),
    "the point of the sequence": ("qmc", internals.QmcHooks, "_find_sample_id", None),
    "the kernels of a subclass": ("tpe", internals.ParzenEstimator, "_calculate_distributions", None),
    "the mixture": ("tpe", sampler, "mixture_of", lambda estimator: estimator.mixture),
    "the share of the best": ("tpe", sampler, "default_gamma", lambda count: count // 2),
    "the share of the best of several": ("tpe", sampler, "default_gamma_multiobjective", lambda count: count // 2),
    "the ranks of several objectives": (
        "tpe",
        history,
        "split_complete_trials_multi_objective",
        lambda trials, _, count: (trials[-count:], trials[:-count]),
    ),
    "the groups of parameters": ("tpe", history, "SearchSpaceGroup", MagicMock),
    "the proposal of a Gaussian process": ("gp", gp_sampler.LevelGpSampler, "_sample_relative_impl", None),
    "where a Gaussian process looks for the best": ("gp", gp_sampler.DivergenceGpSampler, "_optimize_acqf", None),
    "the threshold of a Gaussian process": ("gp", gp_sampler, "_improvement_in", MagicMock()),
    "the model of a Gaussian process": ("gp", gp_sampler, "fit_kernel_params", lambda **_: 1 / 0),
    "a module of the Gaussian process": ("gp", internals, "GP_MODULES", ("optuna._gp.moved",)),
}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("broken", BROKEN)
def test_a_private_part_that_changes_is_noticed_and_logged(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name, owner, attribute, instead = BROKEN[broken]
    if instead is None:
        monkeypatch.delattr(owner, attribute)
    else:
        monkeypatch.setattr(owner, attribute, instead)
    with caplog.at_level(logging.WARNING):
        assert not usable(name)
        assert not usable(name)
    [warning] = caplog.messages
    assert f"The sampler {name} uses Optuna's public classes only" in warning
    assert all(usable(other) for other in CHECKS if other != name)
