"""What judges a trial by its values needs of it: a row of the table, or only these columns of it."""

from typing import Any, NamedTuple, Protocol

from service.store.tables import TrialRow


class MeasuredTrial(Protocol):
    @property
    def number(self) -> int: ...

    @property
    def params(self) -> dict[str, Any]: ...

    @property
    def status(self) -> str: ...

    @property
    def stop_cause(self) -> str | None: ...

    @property
    def failure_kind(self) -> str | None: ...

    @property
    def value(self) -> float | None: ...

    @property
    def values(self) -> dict[str, Any] | None: ...

    @property
    def last_step(self) -> int | None: ...


class TrialMeasurements(NamedTuple):
    """A MeasuredTrial of few columns, for queries of many trials: rows of the table take several times as long."""

    id: str
    number: int
    params: dict[str, Any]
    status: str
    stop_cause: str | None
    failure_kind: str | None
    value: float | None
    values: dict[str, Any] | None
    violation: float | None
    last_step: int | None


MEASUREMENTS = [getattr(TrialRow, name) for name in TrialMeasurements._fields]
"""The columns of TrialMeasurements, in their order."""
