"""Experiments whose stopping rule the service chooses."""

from datetime import timedelta
from typing import Any

from sqlalchemy import select

from service.store.tables import AttemptRow, ReportRow
from tests.api.early_stopping.promotion import experiment
from tests.conftest import Api, Held

STEPS = 9
LIMITS = {"max_trials": 30, "parallelism": 1}
STOPPING = {"rule": "hyperband", "max_step": STEPS, "min_step": 1, "weighted": True}


def created(service: Api, **changes: Any) -> dict[str, Any]:
    return service.create(**{"search": "auto", "limits": LIMITS} | changes)


def ran(
    held: Held,
    steps: int = STEPS,
    *,
    saves_every: int | None = None,
    saves_at: int | None = None,
    value: float = 0.5,
    start: float = 1.0,
) -> None:
    """Run a trial to its end, with steps of ten seconds after a start of so many seconds."""
    for step in range(1, steps + 1):
        saves = step == saves_at or (saves_every is not None and step % saves_every == 0)
        held.report(accuracy=value, checkpoint=f"/{held.trial}/{step}" if saves else None)
    takes(held, start)
    held.finish()


def takes(held: Held, start: float) -> None:
    with held.api.app.state.context.database.write() as session:
        own = select(AttemptRow).where(AttemptRow.trial_id == held.trial)
        attempt = session.scalars(own.order_by(AttemptRow.number.desc())).first()
        assert attempt
        for row in session.scalars(select(ReportRow).where(ReportRow.trial_id == held.trial)):
            row.at = attempt.started_at + timedelta(seconds=start + 10 * row.step)


def chosen(service: Api, name: str) -> list[dict[str, Any]]:
    return [event["data"] for event in service.events(name) if event["kind"] == "experiment.search_chosen"]


def rule(service: Api, name: str) -> dict[str, Any]:
    """What the experiment shows of its rule, as far as it is not a default."""
    shown = experiment(service, name)["early_stopping"]
    interesting = ("max_step", "min_step", "weighted", "promote", "extra_count", "whole_count")
    return {"rule": shown["name"]} | {key: shown["options"][key] for key in interesting if shown["options"].get(key)}
