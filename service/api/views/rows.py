"""What views of database rows share. Times are UTC ISO 8601."""

from typing import Self

from pydantic import BaseModel, ConfigDict

from search.field_descriptions import describe_fields
from service.store.tables import Base


class View(BaseModel):
    """A body of an answer. The docstrings of its fields describe them in OpenAPI."""

    model_config = ConfigDict(json_schema_extra=describe_fields)


class RowView(View):
    """A view whose fields are columns of the row, under the column's name or the field's `validation_alias`."""

    @classmethod
    def of(cls, row: Base) -> Self:
        return cls.model_validate(row, from_attributes=True)
