"""Events as the API shows them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from service.api.views.rows import View
from service.store.tables import EventRow, ExperimentRow
from service.store.trials.trial_values import objective_names, only_value


class EventView(View):
    """One line of an experiment's log."""

    seq: int
    """numbers the experiment's events from 1, without gaps"""
    kind: str
    """what happened, such as `trial.completed`"""
    trial: str | None
    """the id of the trial that it happened to"""
    data: dict[str, Any]
    """the facts, by kind"""
    at: datetime
    """when it happened"""


def event_view(experiment: ExperimentRow, row: EventRow) -> EventView:
    return EventView(
        seq=row.seq, kind=row.kind, trial=row.trial_id, data=_named_values(experiment, row.data), at=row.at
    )


def _named_values(experiment: ExperimentRow, data: Mapping[str, Any]) -> dict[str, Any]:
    """The event's data with `values` and `value` as a trial has them. Events are stored with a list, or with None."""
    if "values" not in data:
        return dict(data)
    names = objective_names(experiment)
    values = dict(zip(names, data["values"] or [None] * len(names), strict=True))
    return {**data, "values": values, "value": only_value(values)}
