"""One metric of a trial's reports. The database takes it from the JSON, so that the others are not read in Python."""

from sqlalchemy import Integer, Select, Subquery, Text, case, cast, func, null, select

from service.store.tables import ReportRow


def reported_values(trial_id: str, metric: str | None, dialect: str) -> Subquery:
    """The columns `step`, `number` and `text`, one of the latter null: NaN and integers beyond 64 bits are texts.

    Without a metric, of the first objective, which has a column of its own.
    """
    of_metric = _sqlite if dialect == "sqlite" else _postgresql
    found = _of_objective() if metric is None else of_metric(metric)
    return found.where(ReportRow.trial_id == trial_id).subquery()


def _of_objective() -> Select[int, float | None, str | None]:
    no_text = cast(null(), Text)
    number = ReportRow.value.label("number")
    return select(ReportRow.step, number, no_text.label("text")).where(ReportRow.value.is_not(None))


def _sqlite(metric: str) -> Select[int, float | None, str | None]:
    """Not by a JSON path, in which SQLite does not find all names, such as one that has an accent."""
    found = func.json_each(ReportRow.metrics).table_valued("key", "value", "type")
    number = case((found.c.type.in_(("integer", "real", "true", "false")), found.c.value))
    text = case((found.c.type == "text", found.c.value))
    return select(ReportRow.step, number.label("number"), text.label("text")).join(found, found.c.key == metric)


def _postgresql(metric: str) -> Select[int, float | None, str | None]:
    found = ReportRow.metrics[metric]
    kind = func.json_typeof(found)
    number = case((kind == "number", found.as_float()), (kind == "boolean", cast(found.as_boolean(), Integer)))
    text = case((kind == "string", found.as_string()))
    return select(ReportRow.step, number.label("number"), text.label("text")).where(kind.is_not(None))
