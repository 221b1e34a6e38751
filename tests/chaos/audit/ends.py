"""Every experiment ended as expected, with each trial once, and nothing is left running."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from search.study import Study, propose
from service.domain.statuses import LIVE_TRIAL
from service.specification.models import ExperimentSpec
from tests.chaos.evidence.generations import generations
from tests.chaos.evidence.snapshot import Experiment, Snapshot, Trial


def clean_end(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.experiments:
        yield "no experiment was submitted: nothing was tried"
    if not snapshot.record.ended:
        yield "the experiments did not end in time"
    if not snapshot.record.quiet:
        yield "at the end the mirror still lagged, or actors were left on the cluster"
    if snapshot.active_leases:
        yield f"{snapshot.active_leases} attempts hold a lease after the end"
    yield from (f"still running after the end: {left}" for left in snapshot.left)
    yield from (f"an experiment that the load did not submit: {name}" for name in snapshot.unplanned)


def ends(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        yield from _experiment(experiment)
        for trial in experiment.trials:
            yield from (f"{experiment.name}: trial {trial.number} {what}" for what in _trial(experiment, trial))


def _experiment(experiment: Experiment) -> Iterator[str]:
    name, expected = experiment.name, experiment.expected
    if (experiment.status, experiment.end_reason) != ("completed", expected.end_reason):
        yield f"{name}: ended as {experiment.status} ({experiment.end_reason}), not completed ({expected.end_reason})"
    numbers = [trial.number for trial in experiment.trials]
    count = len(numbers) if expected.trial_count is None else expected.trial_count
    if numbers != list(range(count)):
        yield f"{name}: has the trials {numbers}, not 0 to {count - 1} once each"


def _trial(experiment: Experiment, trial: Trial) -> Iterator[str]:
    if trial.status in LIVE_TRIAL:
        yield f"never ended, it is {trial.status}"
    elif is_broken(experiment, trial):
        if (trial.status, trial.failure_kind) != ("failed", "user_error"):
            yield f"should have failed by the user's error, and is {trial.status} ({trial.failure_kind})"
    elif trial.status not in allowed(experiment):
        yield f"ended as {trial.status} ({trial.failure_kind}): {_ends_of_attempts(trial)}"


def is_broken(experiment: Experiment, trial: Trial) -> bool:
    """Whether the training function raises with this configuration."""
    broken = experiment.expected.broken_x
    return broken is not None and trial.params.get("x") == broken


def allowed(experiment: Experiment) -> set[str]:
    """The final statuses that a sound trial may have. Population-based training ends none of its members early."""
    rule = (experiment.spec.get("early_stopping") or {}).get("rule", "none")
    by_user = {"stopped"} if experiment.expected.trial_count is None else set()
    return {"completed"} | by_user | (set() if rule in {"none", "pbt"} else {"pruned"})


def _ends_of_attempts(trial: Trial) -> str:
    return "; ".join(f"{attempt.number}: {attempt.kind or attempt.outcome}" for attempt in trial.attempts)


def space(snapshot: Snapshot) -> Iterator[str]:
    """All configurations are in the space; a grid has no point twice; random search draws as without faults."""
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            if (why := _outside(experiment.spec["space"], trial.params)) is not None:
                yield f"{experiment.name}: trial {trial.number} is outside of the space: {why}"
        sampler = experiment.spec["search"]["sampler"]
        if sampler == "grid":
            yield from _twice(experiment)
        if sampler == "random":
            yield from _disturbed(experiment)


def _outside(space: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any]) -> str | None:
    for name, one in space.items():
        exists = all(params.get(parent) in choices for parent, choices in (one.get("when") or {}).items())
        if exists != (name in params):
            return f"{name} is {'missing' if exists else 'there'}"
        if exists and not _is_in(one, params[name]):
            return f"{name} = {params[name]}"
    unknown = set(params) - set(space)
    return f"unknown {unknown}" if unknown else None


def _is_in(one: Mapping[str, Any], value: Any) -> bool:
    if one["type"] == "categorical":
        return value in one["choices"]
    whole = one["type"] != "int" or value == int(value)
    return bool(one["low"] <= value <= one["high"] and whole)


def _twice(experiment: Experiment) -> Iterator[str]:
    points = Counter(tuple(sorted(trial.params.items())) for trial in experiment.trials)
    yield from (
        f"{experiment.name}: {dict(point)} was tried {count} times" for point, count in points.items() if count > 1
    )


def _disturbed(experiment: Experiment) -> Iterator[str]:
    study = study_of(experiment.spec)
    enqueued = {event.trial for event in experiment.events if event.data.get("origin") == "enqueue"}
    for trial in (trial for trial in experiment.trials if trial.id not in enqueued):
        undisturbed, first = propose(study, [], trial.number), generations(experiment, trial)[0].params
        if first != undisturbed:
            yield f"{experiment.name}: trial {trial.number} was {first}; undisturbed it would be {undisturbed}"


def study_of(document: Mapping[str, Any]) -> Study:
    spec = ExperimentSpec.model_validate(document)
    assert spec.search.seed is not None
    return Study(spec.problem, spec.search, spec.search.seed)
