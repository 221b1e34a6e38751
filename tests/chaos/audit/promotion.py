"""ASHA with promotion, recomputed from the events in their order: from its paper, without the service's code.

A trial that is not among the best `1/factor` of those that have reached its rung is paused there. It is promoted as
soon as it is among them. When no other trial may come, the best of a rung is promoted however few have reached it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.audit.decisions import Facts, facts, facts_of
from tests.chaos.evidence.snapshot import Event, Experiment

LIVE = {"queued", "running"}


def promotion(experiment: Experiment) -> Iterator[str]:
    rule, limits = experiment.spec["early_stopping"], experiment.spec["limits"]
    rungs = _Rungs(rule["min_step"], rule["reduction_factor"], rule["max_step"], limits["max_trials"])
    rungs.numbers = {trial.id: trial.number for trial in experiment.trials}

    for event, following in pairwise([*experiment.events, None]):
        assert event is not None
        yield from (f"event {event.seq}: {what}" for what in rungs.take(event))
        if following is None or following.at != event.at:  # the transaction has ended, and has decided all it must
            yield from (f"after event {event.seq}: {what}" for what in rungs.left_undone())


@dataclass
class _Rungs:
    """The state of the rule. `reached` has for each rung the (value, number) of its trials; `due` are arrivals."""

    first: int
    factor: int
    max_step: int
    max_trials: int
    numbers: dict[str, int] = field(default_factory=dict)
    reached: dict[int, dict[str, tuple[float, int]]] = field(default_factory=lambda: defaultdict(dict))
    status: dict[str, str] = field(default_factory=dict)
    paused_at: dict[str, int] = field(default_factory=dict)
    due: dict[str, Facts] = field(default_factory=dict)
    ending: bool = False

    def take(self, event: Event) -> Iterator[str]:
        trial = event.trial or ""
        if event.kind == "trial.created":
            self.status[trial] = "queued"
        elif event.kind.startswith("trial."):
            if event.kind == "trial.queued" and self.status[trial] == "paused" and trial in self.paused_at:
                yield f"trial {self.numbers[trial]} continues, and was not promoted"
            self.status[trial] = event.kind.removeprefix("trial.")
        elif event.kind == "experiment.ending":
            self.ending = True
        elif event.kind == "report" and self._is_rung(event.data["step"]):
            self.due[trial] = self._arrival(trial, event.data["step"], event.data["metrics"]["loss"])
        elif event.kind == "decision":
            yield from self._decision(trial, facts_of(event.data))

    def left_undone(self) -> Iterator[str]:
        """Yield the arrivals that were not decided, and the paused trials that should have been promoted."""
        for trial, expected in self.due.items():
            yield f"trial {self.numbers[trial]} was not judged; the decision must be {expected}"
        self.due.clear()
        if self.ending:
            return
        for trial, rung in self.paused_at.items():
            if self.status[trial] == "paused" and self._passes(trial, rung):
                yield f"trial {self.numbers[trial]} waits at rung {rung}, though it is among the best there"

    def _is_rung(self, step: int) -> bool:
        rung = self.first
        while rung < step:
            rung *= self.factor
        return rung == step < self.max_step

    def _arrival(self, trial: str, rung: int, value: float) -> Facts:
        self.reached[rung][trial] = value, self.numbers[trial]
        quota = len(self.reached[rung]) // self.factor
        passes = trial in self._best(rung, quota)
        return facts("continue" if passes else "pause", rung, value, self._cutoff(rung, quota), self._others(rung))

    def _decision(self, trial: str, found: Facts) -> Iterator[str]:
        number, rung = self.numbers[trial], int(found["milestone"])
        if found["decision"] != "promote":
            expected = self.due.pop(trial, None)
            if found["decision"] == "pause":
                self.paused_at[trial] = rung
        else:
            expected = self._promotion(trial, rung)
            if self.paused_at.pop(trial, None) != rung or self.status[trial] != "paused":
                yield f"trial {number} is promoted at rung {rung}, and was not paused there"
        if found != expected:
            yield f"the decision on trial {number} is {found}; it must be {expected}"

    def _promotion(self, trial: str, rung: int) -> Facts | None:
        if trial not in self.reached[rung] or not self._passes(trial, rung):
            return None
        value, quota = self.reached[rung][trial][0], self._quota(rung)
        return facts("promote", rung, value, self._cutoff(rung, quota), self._others(rung))

    def _passes(self, trial: str, rung: int) -> bool:
        return trial in self._best(rung, self._quota(rung))

    def _quota(self, rung: int) -> int:
        return max(len(self.reached[rung]) // self.factor, 0 if self._others_may_come() else 1)

    def _others_may_come(self) -> bool:
        may_create = not self.ending and len(self.status) < self.max_trials
        return may_create or any(status in LIVE for status in self.status.values())

    def _best(self, rung: int, count: int) -> list[str]:
        """The older of trials that tie is better."""
        there = self.reached[rung]
        return sorted(there, key=there.__getitem__)[:count]

    def _cutoff(self, rung: int, quota: int) -> float | None:
        return self.reached[rung][self._best(rung, quota)[-1]][0] if quota else None

    def _others(self, rung: int) -> int:
        return len(self.reached[rung]) - 1
