"""ASHA, recomputed from the events in their order: from its paper, without the service's code."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.audit.decisions import Facts, facts, facts_of
from tests.chaos.evidence.snapshot import Experiment


def asha(experiment: Experiment) -> Iterator[str]:
    """The decisions in the events are those that the reports before them must cause."""
    rule = experiment.spec["early_stopping"]
    rungs = _Rungs(rule["min_step"], rule["reduction_factor"])
    expected: dict[str, list[Facts]] = defaultdict(list)
    logged: dict[str, list[Facts]] = defaultdict(list)
    for event in experiment.events:
        if event.kind == "report" and event.trial:
            expected[event.trial] += rungs.report(event.trial, event.data["step"], event.data["metrics"]["loss"])
        if event.kind == "decision" and event.trial:
            logged[event.trial].append(facts_of(event.data))
    for trial in experiment.trials:
        if logged[trial.id] != expected[trial.id]:
            yield f"trial {trial.number}: its decisions must be {expected[trial.id]}; they are {logged[trial.id]}"


@dataclass
class _Rungs:
    """The state of ASHA: the value of each trial at each rung."""

    first: int
    factor: int
    rungs: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    highest: dict[str, int] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)

    def report(self, trial: str, step: int, value: float) -> Iterator[Facts]:
        """Yield the decisions that this report must cause. Smaller values are better."""
        before = self.highest.get(trial, 0)
        self.highest[trial] = max(before, step)
        rung = self.first
        while rung <= step:
            if before < rung and trial not in self.stopped:
                yield self._judge(trial, rung, value)
            rung *= self.factor

    def _judge(self, trial: str, rung: int, value: float) -> Facts:
        peers = [other for name, other in self.rungs[rung].items() if name != trial]
        self.rungs[rung][trial] = value
        ranked = sorted([value, *peers])
        cutoff = ranked[max(len(ranked) // self.factor, 1) - 1]
        decision = "stop" if value > cutoff else "continue"
        if decision == "stop":
            self.stopped.add(trial)
        return facts(decision, rung, value, cutoff if peers else None, len(peers))
