"""Checks an entrypoint by the syntax tree of its module."""

import ast
import threading
from collections.abc import Mapping, Sequence

from search.mistakes import Mistake, Path

MAX_SOURCE_BYTES = 1_000_000
"""Longer files are not checked: a syntax tree takes a hundred times the size of its file."""

MAX_LISTED = 20

NOT_REPLACED = {"ray", "torch"}
"""Names of modules that a worker cannot replace. It refuses more of them by itself, such as those of Python's own."""

_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of trees for all threads together. Where the garbage collector lets another thread run
amid a parse, which then parses, too, it raises SystemError (https://github.com/python/cpython/issues/106905)."""

TRAINING_FUNCTION = ("trainer", "entrypoint")


def module_file(files: Sequence[str], entrypoint: str) -> str | None:
    """The file of the entrypoint's module among those of a package, if it is there."""
    stem = entrypoint.partition(":")[0].replace(".", "/")
    return next((name for name in (f"{stem}.py", f"{stem}/__init__.py") if name in files), None)


def mistakes_in_entrypoint(
    files: Sequence[str],
    contents: Mapping[str, bytes],
    entrypoint: str,
    path: Path = TRAINING_FUNCTION,
    *,
    most_arguments: int | None = 1,
) -> list[Mistake]:
    """A missing module, a syntax error, a missing function or a wrong signature; empty when the entrypoint is right.

    `contents`: of the files that entrypoints are in. `path`: its field in the specification. `most_arguments`: how many
    it may take without defaults; None: any number.
    """
    module, function = entrypoint.split(":")
    top = module.partition(".")[0]
    if top in NOT_REPLACED:
        return [Mistake(path, f"rename the module {top!r}: the workers themselves use the library of this name")]
    filename = module_file(files, entrypoint)
    if filename is None:
        modules = ", ".join(_modules(files)[:MAX_LISTED]) or "no .py file"
        return [Mistake(path, f"the package has no module {module!r}; it has: {modules}")]
    try:
        tree = _tree(contents[filename])
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        return [Mistake(("trainer", "package"), f"{filename}{line}: {message}")]
    if tree is None:
        return []
    names = _names(tree.body)
    if function in names or "*" in names:
        return [] if most_arguments is None else _mistakes_in_signature(tree, filename, function, path)
    functions = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef)) or "none"
    return [Mistake(path, f"{filename} has no function {function!r}; it has: {functions}")]


def takes_no_argument(source: bytes, function: str) -> bool:
    """Whether the module defines the function so that it can get no configuration. `source` has no syntax errors."""
    tree = _tree(source)
    if tree is None:
        return False
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return bool(nodes) and not nodes[-1].decorator_list and not ast.unparse(nodes[-1].args)


def _tree(source: bytes) -> ast.Module | None:
    """None for code that is not checked. Raises SyntaxError, ValueError."""
    if len(source) > MAX_SOURCE_BYTES:
        return None
    try:
        with _PARSING:
            return ast.parse(source)
    except (RecursionError, MemoryError):
        return None  # nested too deeply for this thread's stack; a worker may still be able to import it


def _modules(files: Sequence[str]) -> list[str]:
    """`train.py` as train, `src/model.py` as src.model, `src/__init__.py` as src."""
    stems = (name.removesuffix(".py").removesuffix("/__init__") for name in files if name.endswith(".py"))
    return [stem.replace("/", ".") for stem in stems]


def _mistakes_in_signature(tree: ast.Module, filename: str, function: str, path: Path) -> list[Mistake]:
    """The function is called with the configuration, or without arguments."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == function:
            flaw = _flaw_in(node)
            return [] if flaw is None else [Mistake(path, f"{filename}: {function} {flaw}")]
    return []


def _flaw_in(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    if isinstance(node, ast.ClassDef):
        return "is a class, and must be a function"
    if isinstance(node, ast.AsyncFunctionDef):
        if node.decorator_list:  # which may make a plain function of it
            return None
        return "is an async function, and must be a plain one, which may call asyncio.run()"
    if _yields(node):
        return "is a generator, because it has a yield, and must be a plain function"
    needed = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    return f"must take one argument, the configuration, or none; it takes {needed}" if needed > 1 else None


def _yields(function: ast.FunctionDef) -> bool:
    left: list[ast.AST] = [*function.body]
    for node in left:
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(node)
    return False


def _names(statements: list[ast.stmt]) -> set[str]:
    """The names a module binds at its top level, in branches too."""
    names: set[str] = set()
    left: list[ast.AST] = list(statements)
    while left:
        match node := left.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            case _:
                for block in ("body", "orelse", "finalbody", "handlers"):
                    inner = getattr(node, block, [])
                    left += inner if isinstance(inner, list) else []
    return names
