"""The update of a trial's run, its status and tags, from the events of the trial. Pure.

The names of tags are an interface: users filter by them.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from service.domain.attempt_holders import describe_holder
from service.mirror.runs import descriptions
from service.mirror.runs.run_update import RunStatus, RunUpdate
from service.store.tables import EventRow

# A pruned trial is FINISHED, because MLflow's UI shows KILLED like a failure.
TRIAL_ENDS: Mapping[str, RunStatus] = {
    "trial.completed": "FINISHED",
    "trial.pruned": "FINISHED",
    "trial.failed": "FAILED",
    "trial.stopped": "KILLED",
}
NONE = "none"
UNKNOWN = "unknown"
"""The status of a run whose trial, or generation, Paceline does not have."""
_DECISION_TAGS = {
    "rule": "rule",
    "reason": "reason",
    "milestone": "rung",
    "cutoff": "cutoff",
    "value": "value",
    "step": "step",
    "compared_count": "compared_count",
    "compared_with": "compared_with",
}


def changes_a_run(event: EventRow) -> bool:
    """Whether the event is about a trial, of a kind that its run shows."""
    return event.kind in _HANDLERS


def apply_trial_event(update: RunUpdate, event: EventRow) -> None:
    _HANDLERS[event.kind](update, event)
    if event.kind.startswith("trial."):
        _add_cost(update, event)


def unknown_trial(now: datetime) -> RunUpdate:
    """The end of the run of a trial, or of a generation, that Paceline does not have.

    Its database was restored from a backup.
    """
    update = RunUpdate(started_at=now)
    update.set_tags(status=UNKNOWN)
    update.describe(
        "unknown: Paceline has no such trial, or none with these params; its database was restored from an "
        "earlier backup"
    )
    update.set_status("KILLED", now)
    return update


def cost_metric(field: str) -> str:
    """`training_seconds` is `paceline/seconds_training`, so that the phases are listed together."""
    name = field.removesuffix("_seconds")
    return f"paceline/{field}" if name in {"worker", "gpu"} else f"paceline/seconds_{name}"


def system_metric(name: str, node: int | None) -> str:
    """As MLflow's own monitor names it: MLflow's UI shows these in a tab of their own."""
    return f"system/{name}" if node is None else f"system/node_{node}/{name}"


def _add_cost(update: RunUpdate, event: EventRow) -> None:
    """The cost of the trial's attempts so far, in an event that follows the end of one."""
    metrics = {cost_metric(field): seconds for field, seconds in (event.data.get("cost") or {}).items()}
    update.add_metrics(metrics, event.at, int(event.data.get("step") or 0))


def _report(update: RunUpdate, event: EventRow) -> None:
    update.add_metrics(event.data.get("metrics") or {}, event.at, int(event.data.get("step") or 0))


def _world_size(update: RunUpdate, event: EventRow) -> None:
    """A point for each attempt: so many workers from this step on."""
    size = event.data.get("world_size")
    update.set_tags(world_size=size)
    update.add_metrics({"paceline/world_size": size}, event.at, int(event.data.get("step") or 0))


def _system_metrics(update: RunUpdate, event: EventRow) -> None:
    """Points at the times of the samples."""
    for sample in event.data.get("samples") or []:
        metrics = {system_metric(name, sample.get("node")): value for name, value in sample["metrics"].items()}
        update.add_metrics(metrics, datetime.fromisoformat(sample["at"]), int(sample["step"]))


def _running(update: RunUpdate, event: EventRow) -> None:
    attempt, agent = event.data.get("attempt"), event.data.get("agent")
    update.set_tags(status="running", attempt=attempt, agent=agent)
    if (attempt or 1) > 1:  # what ended the attempt before says nothing about this one
        update.clear_tags("reason", "failure.kind", "failure.message")
    update.describe(f"running: attempt {attempt}, run by {describe_holder(str(agent))}")
    update.set_status("RUNNING")


def _queued(update: RunUpdate, event: EventRow) -> None:
    update.set_tags(status="queued", reason=event.data.get("reason"))
    update.describe(f"queued again: {event.data.get('reason')}")
    update.set_status("SCHEDULED")


def _paused(update: RunUpdate, event: EventRow) -> None:
    update.set_tags(status="paused", reason=event.data.get("reason"), last_step=event.data.get("step"))
    update.describe(f"paused at step {event.data.get('milestone')}: {event.data.get('reason')}")
    update.set_status("SCHEDULED")


def _ended(update: RunUpdate, event: EventRow) -> None:
    status = event.kind.removeprefix("trial.")
    update.set_tags(status=status, reason=event.data.get("reason"), last_step=event.data.get("step"))
    if status == "failed":  # by its values, perhaps, as one that diverged: then its attempt has not failed
        update.set_tags(**{"failure.kind": event.data.get("kind"), "failure.message": event.data.get("reason")})
    if event.data.get("feasible") is not None:
        update.set_tags(feasible="yes" if event.data["feasible"] else "no")
    update.describe(descriptions.trial_end(status, event.data))
    update.set_status(TRIAL_ENDS[event.kind], event.at)


def _exploited(update: RunUpdate, event: EventRow) -> None:
    """The last event of a generation: the trial continues with other params, in another run."""
    successor = descriptions.exploit(event.data)
    update.set_tags(status="exploited", goes_on=successor, reason=event.data.get("reason"))
    update.describe(successor)
    update.set_status("FINISHED", event.at)


def _decision(update: RunUpdate, event: EventRow) -> None:
    update.set_tags(decision=event.data.get("decision"))
    facts = {f"decision.{tag}": event.data.get(name) for name, tag in _DECISION_TAGS.items()}
    # Otherwise the cutoff of an earlier decision would stand beside this one's value.
    update.set_tags(**{tag: NONE if fact is None else fact for tag, fact in facts.items()})


def _checkpoint(update: RunUpdate, event: EventRow) -> None:
    """If the objective has `report: best`, the tags name the best one."""
    if event.data.get("is_best") is False:
        return
    update.set_tags(checkpoint=event.data.get("uri"), checkpoint_step=event.data.get("step"))


def _checkpoint_removed(update: RunUpdate, event: EventRow) -> None:
    if not event.data.get("left_count"):
        update.set_tags(checkpoint="removed", checkpoint_removed=event.data.get("why"))


def _attempt_ended(update: RunUpdate, event: EventRow) -> None:
    if event.data.get("kind"):
        update.set_tags(**{"failure.kind": event.data["kind"], "failure.message": event.data.get("message")})


_HANDLERS: Mapping[str, Callable[[RunUpdate, EventRow], None]] = {
    "report": _report,
    "trial.running": _running,
    "trial.queued": _queued,
    "trial.paused": _paused,
    "decision": _decision,
    "checkpoint": _checkpoint,
    "checkpoint.removed": _checkpoint_removed,
    "attempt.ended": _attempt_ended,
    "attempt.world_size": _world_size,
    "attempt.system_metrics": _system_metrics,
    "trial.exploited": _exploited,
    **dict.fromkeys(TRIAL_ENDS, _ended),
}
