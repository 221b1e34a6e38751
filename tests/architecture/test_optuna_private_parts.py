"""Optuna's private parts are used only in `search/samplers/optuna/`, and all of them exist in the installed version.

Optuna may rename them in any release. Then `test_each_private_part_exists` names what has to be adapted.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import optuna
import pytest

import search.samplers.optuna as adapter

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "examples", "migrations", "search", "service", "tests", "trainer")
ADAPTER = "search/samplers/optuna/"
ALLOWED = {
    "tests/unit/search/test_samplers.py": "compares with Optuna's samplers, whose random numbers it has to control",
    "tests/unit/search/test_parzen_estimator.py": "compares with Optuna's private estimator",
    "tests/mirror/test_projection.py": "compares with the hypervolumes that Optuna plots",
    "benchmarks/histories.py": "writes long histories directly into Optuna's tables, where its API takes hours",
    "benchmarks/recovery.py": "asks Optuna's storage, which knows a study only by its private id",
}

SAMPLERS: dict[str, Any] = {
    "TPESampler": optuna.samplers.TPESampler,
    "CmaEsSampler": optuna.samplers.CmaEsSampler,
    "NSGAIISampler": optuna.samplers.NSGAIISampler,
    "NSGAIIISampler": optuna.samplers.NSGAIIISampler,
}
IN_MODULES = {
    "optuna._hypervolume": ["compute_hypervolume"],
    "optuna._transform": [
        "_SearchSpaceTransform",
        "_SearchSpaceTransform.transform",
        "_SearchSpaceTransform.untransform",
    ],
    "optuna.samplers": [
        "QMCSampler._find_sample_id",
        "TPESampler._sample_relative",
        "TPESampler._sample",
        "TPESampler._compare",
    ],
    "optuna.samplers._lazy_random_state": ["LazyRandomState", "LazyRandomState.rng"],
    "optuna.samplers._tpe._truncnorm": ["_log_gauss_mass", "_norm_pdf_logC"],
    "optuna.samplers._tpe.parzen_estimator": [
        "EPS",
        "_ParzenEstimator",
        "_ParzenEstimator._calculate_distributions",
        "_ParzenEstimatorParameters",
    ],
    "optuna.samplers._tpe.probability_distributions": [
        "_BatchedCategoricalDistributions",
        "_BatchedDistributions",
        "_BatchedTruncLogNormDistributions",
        "_BatchedTruncNormDistributions",
        "_MixtureOfProductDistribution",
        "_log_gauss_mass_unique",
        "_unique_inverse_2d",
    ],
    "optuna.samplers._tpe.sampler": [
        "_split_complete_trials_multi_objective",
        "default_gamma",
        "default_gamma_multiobjective",
    ],
    "optuna.search_space.group_decomposed": ["_SearchSpaceGroup", "_SearchSpaceGroup.add_distributions"],
    "optuna.study._constrained_optimization": ["_CONSTRAINTS_KEY"],
    "optuna._gp.acqf": [],
    "optuna._gp.batched_lbfgsb": [],
    "optuna._gp.gp": [],
    "optuna._gp.optim_mixed": [],
    "optuna._gp.prior": [],
    "optuna._gp.search_space": [],
}
"""By module, what the adapter imports, calls or overrides. A module without names is only imported."""

OF_INSTANCES = {
    "TPESampler": [
        "_group",
        "_is_multivariate",
        "_n_ei_candidates",
        "_n_startup_trials",
        "_parzen_estimator_parameters",
        "_random_sampler",
        "_rng",
        "_search_space_group",
    ],
    "CmaEsSampler": ["_cma_rng", "_init_optimizer", "_restore_optimizer", "_with_margin"],
    "NSGAIISampler": ["_child_generation_strategy", "_elite_population_selection_strategy"],
    "NSGAIIISampler": ["_child_generation_strategy", "_elite_population_selection_strategy"],
}

PUBLIC = {"_exit", "_replace"}
"""Documented names with an underscore: `os._exit`, and the methods of named tuples."""

ELSEWHERE = {"_mixture_distribution": "of a Parzen estimator", "_rng": "of an optimizer of the library cmaes"}
"""Checked by building one: see `test_an_estimator_and_an_optimizer_have_their_private_attributes`."""


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


def modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_only_the_adapter_uses_optunas_private_parts() -> None:
    found = {}
    for path in modules():
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(ADAPTER) and name not in ALLOWED and name != Path(__file__).relative_to(ROOT).as_posix():
            found[name] = list(uses(ast.parse(path.read_text())))
    assert {name: used for name, used in found.items() if used} == {}


@pytest.mark.parametrize("name", ALLOWED)
def test_each_exception_is_still_needed(name: str) -> None:
    assert list(uses(ast.parse((ROOT / name).read_text())))


@pytest.mark.parametrize(
    "code",
    [
        "import optuna._transform",
        "from optuna import _transform",
        "from optuna.samplers._tpe import sampler as tpe",
        "from search.samplers.optuna.parzen_estimator import _float_kernels",
        "import optuna\nclass Mine(optuna.samplers.TPESampler): pass",
        "from optuna.samplers import TPESampler as Theirs\nclass Mine(Theirs): pass",
        "import optuna\noptuna.samplers.TPESampler()._rng",
        "from search.samplers.optuna.ask import ask\ndef f(sampler): return sampler._rng",
        "import_module('optuna._gp.acqf')",
    ],
)
def test_a_use_outside_of_the_adapter_is_found(code: str) -> None:
    assert list(uses(ast.parse(code)))


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in IN_MODULES for name in IN_MODULES[module]])
def test_each_private_part_exists(module: str, name: str) -> None:
    assert reduce(getattr, name.split("."), importlib.import_module(module)) is not None


@pytest.mark.parametrize("module", IN_MODULES)
def test_each_private_module_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("sampler", "name"), [(sampler, name) for sampler in OF_INSTANCES for name in OF_INSTANCES[sampler]]
)
def test_each_private_attribute_of_a_sampler_exists(sampler: str, name: str) -> None:
    assert hasattr(SAMPLERS[sampler](seed=0), name)


def test_an_estimator_and_an_optimizer_have_their_private_attributes() -> None:
    import numpy as np  # noqa: PLC0415
    from optuna.samplers._tpe.parzen_estimator import (  # noqa: PLC0415
        _ParzenEstimator,
        _ParzenEstimatorParameters,
    )
    from optuna.samplers._tpe.sampler import default_weights  # noqa: PLC0415

    optimizer = importlib.import_module("cmaes").CMA(mean=np.zeros(2), sigma=1.0)
    assert hasattr(optimizer, "_rng")
    parameters = _ParzenEstimatorParameters(1.0, True, False, default_weights, multivariate=True)
    space: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(0, 1)}
    estimator = _ParzenEstimator({"x": np.array([0.5])}, space, parameters)
    assert hasattr(estimator, "_mixture_distribution")


def test_the_lists_above_are_complete() -> None:
    listed = {part for names in IN_MODULES.values() for name in names for part in name.split(".")}
    listed |= {name for names in OF_INSTANCES.values() for name in names} | set(ELSEWHERE)
    imported, attributes = set[str](), set[str]()
    for path in sorted((ROOT / ADAPTER).glob("*.py")):
        tree = ast.parse(path.read_text())
        imported |= set(_private_imports(tree))
        attributes |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr[0] == "_"}
    own, overridden = _own_attributes()
    unknown = {name for name in attributes if not name.endswith("__")} - own - listed
    assert (imported - listed, unknown, overridden - listed) == (set(), set(), set())


def _private_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "optuna":
            yield from (one.name for one in node.names if _is_private(f"{node.module}.{one.name}"))


def _own_attributes() -> tuple[set[str], set[str]]:
    """The underscored names that the adapter's classes define, and those with which they override Optuna's."""
    own, overridden = set[str](), set[str]()
    for kind in _adapter_classes():
        theirs = {name for base in kind.__mro__ if base.__module__.startswith("optuna.") for name in vars(base)}
        defined = {name for name in vars(kind) if name.startswith("_") and not name.endswith("__")} - {"_abc_impl"}
        own |= (defined | _assigned(kind)) - theirs
        overridden |= defined & theirs
    return own, overridden


def _assigned(kind: type) -> set[str]:
    """The attributes that a class assigns, of itself or of its arguments."""
    tree = ast.parse(inspect.getsource(kind))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def _adapter_classes() -> Iterator[type]:
    for found in pkgutil.iter_modules(adapter.__path__, f"{adapter.__name__}."):
        module: ModuleType = importlib.import_module(found.name)
        yield from (kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == found.name)
