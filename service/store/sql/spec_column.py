"""The column of specifications: what an earlier version would misread is stored as a field that it does not know."""

from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator, TypeEngine

from service.store.sql.column_types import Json

EARLIER_NUMBER = 100
"""In place of `limits.max_trials: null`: for earlier versions it is a number, which is shown in their lists."""
MARK = "no_max_trials"
"""An earlier version answers for an experiment with this field that only a later one knows it, and leaves it alone."""


class SpecJson(TypeDecorator[dict[str, Any]]):
    """A specification as JSON."""

    impl = Json
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:  # noqa: ARG002
        limits = (value or {}).get("limits")
        if value is None or limits is None or limits.get("max_trials", EARLIER_NUMBER) is not None:
            return value
        return value | {"limits": limits | {"max_trials": EARLIER_NUMBER, MARK: True}}

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:  # noqa: ARG002
        limits = (value or {}).get("limits") or {}
        if value is None or not limits.get(MARK):
            return value
        return value | {"limits": {name: one for name, one in limits.items() if name != MARK} | {"max_trials": None}}

    def coerce_compared_value(self, op: OperatorType | None, value: Any) -> TypeEngine[Any]:
        """The type of a path into the document, and of what is found there."""
        return self.impl_instance.coerce_compared_value(op, value)
