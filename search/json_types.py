"""A base of the models that users write: their numbers are JSON's numbers, and their booleans are JSON's booleans."""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from search.field_descriptions import describe_fields

_INNER = {"schema", "items_schema", "keys_schema", "values_schema"}


class JsonModel(BaseModel):
    """A model that is strict about JSON's types: pydantic by itself takes true for the number 1, and text for numbers.

    5.0 is a whole number, as in JSON Schema. Unions are left to pydantic's own choice of their members.
    """

    model_config = ConfigDict(json_schema_extra=describe_fields)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        fields = schema
        while fields["type"] != "model-fields":  # the model's own validators are around them
            fields = fields["schema"]
        for field in fields["fields"].values():
            field["schema"] = _exact(field["schema"])
        checked: CoreSchema = schema
        return checked


def _exact(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_exact(one) for one in schema]
    if schema["type"] in {"int", "float"}:
        return core_schema.no_info_before_validator_function(_a_number, schema)
    if schema["type"] == "bool":
        return schema | {"strict": True}
    if schema["type"] in {"model", "union"} or schema.get("function", {}).get("function") is _a_number:
        return schema  # the last: pydantic hands out a class's finished schema each time the class is used
    return schema | {name: _exact(inner) for name, inner in schema.items() if name in _INNER}


def _a_number(value: Any) -> Any:
    if isinstance(value, bool | str):
        what = "text" if isinstance(value, str) else "true or false"
        raise ValueError(f"must be a number, not {what}")  # noqa: TRY004 - pydantic wants a ValueError
    return value
