"""Early stopping, recomputed from the events in their order: ASHA from its paper, without the service's code."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.evidence.snapshot import Event, Experiment, Snapshot, Trial

FACTS = ("decision", "milestone", "value", "cutoff", "compared_count")


@dataclass
class Asha:
    """The state of ASHA: the value of each trial at each rung."""

    first: int
    factor: int
    rungs: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    highest: dict[str, int] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)

    def report(self, trial: str, step: int, value: float) -> list[dict[str, Any]]:
        """Return the decisions that this report must cause. Smaller values are better."""
        before = self.highest.get(trial, 0)
        self.highest[trial] = max(before, step)
        decisions = []
        rung = self.first
        while rung <= step:
            if before < rung and trial not in self.stopped:
                decisions.append(self._judge(trial, rung, value))
            rung *= self.factor
        return decisions

    def _judge(self, trial: str, rung: int, value: float) -> dict[str, Any]:
        peers = [other for name, other in self.rungs[rung].items() if name != trial]
        self.rungs[rung][trial] = value
        ranked = sorted([value, *peers])
        cutoff = ranked[max(len(ranked) // self.factor, 1) - 1]
        decision = "stop" if value > cutoff else "continue"
        if decision == "stop":
            self.stopped.add(trial)
        facts = (decision, rung, value, cutoff if peers else None, len(peers))
        return dict(zip(FACTS, facts, strict=True))


def stopping(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        rule = experiment.spec.get("early_stopping") or {"rule": "none"}
        asha = Asha(rule["min_step"], rule["reduction_factor"]) if rule["rule"] == "asha" else None
        yield from (f"{experiment.name}: {what}" for what in _decisions(experiment, asha))
        stopped = asha.stopped if asha else set()
        yield from (f"{experiment.name}: {what}" for what in _consequences(experiment, stopped))


def _decisions(experiment: Experiment, asha: Asha | None) -> Iterator[str]:
    """The decisions in the events and in SQL are those that the reports before them must cause."""
    expected: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in experiment.events:
        if event.kind == "report" and event.trial and asha:
            expected[event.trial] += asha.report(event.trial, event.data["step"], event.data["metrics"]["loss"])
    logged: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in experiment.events:
        if event.kind == "decision" and event.trial:
            logged[event.trial].append(_facts(event))
    for trial in experiment.trials:
        stored = [{name: decision.get(name) for name in FACTS} for decision in trial.decisions]
        if not expected[trial.id] == logged[trial.id] == stored:
            must = f"must be {expected[trial.id]}; logged {logged[trial.id]}, stored {stored}"
            yield f"trial {trial.number}: its decisions {must}"


def _curve_ends_at_decision(trial: Trial) -> Iterator[str]:
    """Nothing after the report that stopped an attempt counts, and nothing before it is set aside."""
    stops = {made["attempt"]: made["step"] for made in trial.decisions if made["decision"] == "stop"}
    for point in trial.curve:
        if point.step > stops.get(point.attempt, point.step):
            yield f"its step {point.step} counts, though it was stopped at step {stops[point.attempt]}"
    for point in trial.uncounted:
        if point.attempt not in stops or point.step <= stops[point.attempt]:
            yield f"its step {point.step} does not count, though no decision had ended attempt {point.attempt}"


def _facts(event: Event) -> dict[str, Any]:
    return {name: event.data.get(name) for name in FACTS}


def _consequences(experiment: Experiment, stopped: set[str]) -> Iterator[str]:
    """Exactly the stopped trials are pruned."""
    for trial in experiment.trials:
        yield from (f"trial {trial.number}: {what}" for what in _curve_ends_at_decision(trial))
        if (trial.status == "pruned") != (trial.id in stopped) and trial.status in {"completed", "pruned"}:
            was = "was" if trial.id in stopped else "was not"
            yield f"trial {trial.number} is {trial.status}, though it {was} stopped"
