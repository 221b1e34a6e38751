"""The descriptions of a model's fields, which are the docstrings below them, as JSON Schema and messages show them.

Pydantic can do this by itself (`use_attribute_docstrings`), but it reads the source of each class when the class is
created: a quarter of the service's start. Here, source files are read when a description is wanted, each file once.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


def describe_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the descriptions to the model's JSON schema. For `ConfigDict(json_schema_extra=describe_fields)`."""
    properties = schema.get("properties", {})
    for name, description in field_descriptions(model).items():
        shown = name if name in properties else model.model_fields[name].validation_alias
        if shown in properties:
            properties[shown]["description"] = description


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The fields that have a description, which is the one of `Field`, or else the docstring."""
    found = {name: field.description or _docstring(model, name) for name, field in model.model_fields.items()}
    return {name: description for name, description in found.items() if description}


def _docstring(model: type[BaseModel], field: str) -> str | None:
    """The docstring in the class that declares the field: the model, or one that it inherits from."""
    declaring = next((one for one in model.__mro__ if field in inspect.get_annotations(one)), model)
    return _docstrings(declaring.__module__).get(f"{declaring.__qualname__}.{field}")


@cache
def _docstrings(module: str) -> dict[str, str]:
    """The docstrings of all attributes in a module, by qualified name; none where only compiled code is installed."""
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return {}
    return dict(_below(ast.parse(source), ""))


def _below(scope: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    statements = list(ast.iter_child_nodes(scope))
    for statement, following in pairwise(statements):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield f"{prefix}{name}", inspect.cleandoc(text)
    for statement in statements:
        match statement:
            case ast.ClassDef(name=name):
                yield from _below(statement, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _below(statement, f"{prefix}{name}.<locals>.")
