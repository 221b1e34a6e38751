"""Early stopping, recomputed from the events in their order, by a function for each rule."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.chaos.audit.asha import asha
from tests.chaos.audit.decisions import facts_of
from tests.chaos.audit.population import population
from tests.chaos.audit.promotion import promotion
from tests.chaos.evidence.snapshot import Experiment, Snapshot, Trial

ENDS_ATTEMPT = {"stop", "pause"}

Recompute = Callable[[Experiment], Iterator[str]]


def stopping(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        for check in (_rule(experiment.spec.get("early_stopping") or {}), _stored, _consequences):
            yield from (f"{experiment.name}: {what}" for what in check(experiment))


def _rule(rule: Mapping[str, Any]) -> Recompute:
    match rule.get("rule", "none"):
        case "asha":
            return promotion if rule.get("promote") else asha
        case "pbt":
            return population
        case _:
            return _no_decisions


def _no_decisions(experiment: Experiment) -> Iterator[str]:
    made = sum(event.kind == "decision" for event in experiment.events)
    if made:
        yield f"{made} decisions were made; it stops no trial early"


def _stored(experiment: Experiment) -> Iterator[str]:
    """SQL has the decisions that the events have."""
    logged: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in experiment.events:
        if event.kind == "decision" and event.trial:
            logged[event.trial].append(facts_of(event.data))
    for trial in experiment.trials:
        stored = [facts_of(decision) for decision in trial.decisions]
        if stored != logged[trial.id]:
            yield f"trial {trial.number}: its stored decisions must be {logged[trial.id]}; they are {stored}"


def _consequences(experiment: Experiment) -> Iterator[str]:
    """Exactly the trials that were stopped, or that waited to the end, are pruned."""
    for trial in experiment.trials:
        yield from (f"trial {trial.number}: {what}" for what in _curve_ends_at_decision(trial))
        lost = bool(trial.decisions) and trial.decisions[-1]["decision"] in ENDS_ATTEMPT
        if (trial.status == "pruned") != lost and trial.status in {"completed", "pruned"}:
            was = "was" if lost else "was not"
            yield f"trial {trial.number} is {trial.status}, though it {was} stopped"


def _curve_ends_at_decision(trial: Trial) -> Iterator[str]:
    """Nothing after the report that stopped an attempt counts, and nothing before it is set aside."""
    stops = {made["attempt"]: made["step"] for made in trial.decisions if made["decision"] in ENDS_ATTEMPT}
    for point in trial.curve:
        if point.step > stops.get(point.attempt, point.step):
            yield f"its step {point.step} counts, though it was stopped at step {stops[point.attempt]}"
    for point in trial.uncounted:
        if point.attempt not in stops or point.step <= stops[point.attempt]:
            yield f"its step {point.step} does not count, though no decision had ended attempt {point.attempt}"
