"""Finds what is wrong with an entrypoint before a worker does, by reading the package without running it."""

import ast
import io
import zipfile

from service.errors import Mistake
from service.store.tables import PackageRow


def mistakes_in_entrypoint(package: PackageRow, body: bytes, entrypoint: str) -> list[Mistake]:
    """What a user should mend: no such module, a syntax error, no such function."""
    module, function = entrypoint.split(":")
    stem = module.replace(".", "/")
    filename = next((name for name in (f"{stem}.py", f"{stem}/__init__.py") if name in package.files), None)
    if filename is None:
        modules = ", ".join(name for name in package.files if name.endswith(".py"))
        return [Mistake("trainer.entrypoint", f"the package has no module {module!r}; it has: {modules}")]
    try:
        tree = ast.parse(_read(package, body, filename), filename)
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        return [Mistake("trainer.package", f"{filename}{line}: {message}")]
    names = _names(tree.body)
    if function in names or "*" in names:
        return []
    functions = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef)) or "none"
    return [Mistake("trainer.entrypoint", f"{filename} has no function {function!r}; it has: {functions}")]


def _read(package: PackageRow, body: bytes, filename: str) -> bytes:
    if package.filename.endswith(".py"):
        return body
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return archive.read(filename)


def _names(statements: list[ast.stmt]) -> set[str]:
    """The names a module binds at its top level, in branches too."""
    names: set[str] = set()
    for node in statements:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            case _:
                for block in ("body", "orelse", "finalbody"):
                    names |= _names(getattr(node, block, []))
                for handler in getattr(node, "handlers", []):
                    names |= _names(handler.body)
    return names
