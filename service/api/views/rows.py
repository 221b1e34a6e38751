"""What views of database rows share. Times are UTC ISO 8601."""

from typing import Self

from pydantic import BaseModel

from service.store.tables import Base


class RowView(BaseModel):
    """A view whose fields are columns of the row, under the column's name or the field's `validation_alias`."""

    @classmethod
    def of(cls, row: Base) -> Self:
        return cls.model_validate(row, from_attributes=True)
