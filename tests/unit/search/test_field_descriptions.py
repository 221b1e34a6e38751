"""A field is described by the docstring below it, where pydantic's `use_attribute_docstrings` would find it."""

import importlib
import py_compile
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field

from search.field_descriptions import describe_fields, field_descriptions

Item = TypeVar("Item")


class Described(BaseModel):
    model_config = ConfigDict(json_schema_extra=describe_fields)


class Part(Described):
    """A part."""

    size: int
    """how large
    it is"""


class Whole(Described):
    """A whole."""

    first: Part
    """the first part"""
    silent: int
    renamed: int = Field(validation_alias="other")
    """a field with another name in requests"""
    explicit: int = Field(description="in words of its own")
    """a docstring that is not shown"""
    annotated: Annotated[int, Field(description="in the type's words")]


class Heir(Whole):
    silent: int
    """no longer silent"""
    first: Part
    more: int
    """more than the whole"""

    class Inner(Described):
        more: int
        """the same name in another class"""


class Page(Described, Generic[Item]):
    items: list[Item]
    """one page"""


WHOLE = {
    "first": "the first part",
    "renamed": "a field with another name in requests",
    "explicit": "in words of its own",
    "annotated": "in the type's words",
}
HEIR = {name: text for name, text in WHOLE.items() if name != "first"}


@pytest.mark.parametrize(
    ("model", "descriptions"),
    [
        (Part, {"size": "how large\nit is"}),
        (Whole, WHOLE),
        (Heir, HEIR | {"silent": "no longer silent", "more": "more than the whole"}),
        (Heir.Inner, {"more": "the same name in another class"}),
        (Page[int], {"items": "one page"}),
    ],
)
def test_the_docstrings_describe_the_fields(model: type[BaseModel], descriptions: dict[str, str]) -> None:
    assert field_descriptions(model) == descriptions


@pytest.mark.parametrize(("mode", "renamed"), [("validation", "other"), ("serialization", "renamed")])
def test_the_schema_has_the_descriptions(mode: Any, renamed: str) -> None:
    schema = Page[Whole].model_json_schema(mode=mode)
    found = {name: field.get("description") for name, field in schema["$defs"]["Whole"]["properties"].items()}
    assert found == {"silent": None, renamed: WHOLE["renamed"]} | {k: v for k, v in WHOLE.items() if k != "renamed"}
    assert schema["$defs"]["Part"]["properties"]["size"]["description"] == "how large\nit is"
    assert schema["properties"]["items"]["description"] == "one page"


def test_a_class_inside_a_function_is_described() -> None:
    class Local(Described):
        here: int
        """inside a function"""

    assert field_descriptions(Local) == {"here": "inside a function"}


def test_a_model_without_source_has_a_schema_without_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "compiled_model.py"
    source.write_text(f"from {__name__} import Described\nclass Model(Described):\n    x: int\n    'lost'\n")
    py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")))
    source.unlink()
    monkeypatch.syspath_prepend(tmp_path)
    properties = importlib.import_module("compiled_model").Model.model_json_schema()["properties"]
    assert properties == {"x": {"title": "X", "type": "integer"}}
