"""A small, hand-made run without violations. Tests break one guarantee at a time in it."""

from collections import Counter
from copy import deepcopy
from typing import Any

from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.snapshot import Attempt, Event, Experiment, MlflowRun, Point, Saved, Snapshot, Trial
from tests.chaos.experiments import Expected, Planned, pace
from tests.chaos.faults.fault_injector import Fault
from tests.chaos.faults.schedule import PlannedFault, Target
from tests.chaos.run import Record
from tests.chaos.user_code.curves import loss
from tests.chaos.user_code.numbered_lines import numbered_line

ID = "x-00000000abcd"
KILLED_AT = 1005.5


def good_run() -> Snapshot:
    """Two trials of `pace`: the first lost its worker at step 5 and resumed from step 3; the second was pruned."""
    planned = pace("pace-0", "/journal", seed=1, trials=2, parallelism=2)
    builder = _RunBuilder(planned)
    builder.add_event("experiment.created", None, {})
    first = builder.trial(0, {"x": 0.3, "width": 1, "shape": "straight"})
    builder.begin(first, 1, None)
    builder.report(first, 1, range(1, 6), saved={3})
    builder.end(first, 1, "failed", "lost")
    builder.begin(first, 2, 3)
    builder.report(first, 2, range(4, 13), saved={6, 9, 12}, already=5)
    builder.end(first, 2, "completed", None)
    second = builder.trial(1, {"x": 0.9, "width": 2, "shape": "bent", "bend": 1.0})
    builder.begin(second, 1, None)
    builder.report(second, 1, range(1, 5), saved={3})
    builder.end(second, 1, "stopped", None)
    builder.add_event("experiment.ending", None, {})
    builder.add_event("experiment.completed", None, {})
    return builder.snapshot()


class _RunBuilder:
    def __init__(self, planned: Planned) -> None:
        self.spec = {"step_metric": "step", **deepcopy(dict(planned.spec))}
        self.spec["space"]["bend"]["when"] = {"shape": ["bent"]}
        self.expected: Expected = planned.expected
        self.now = 1000.0
        self.events: list[Event] = []
        self.lines: list[Line] = []
        self.trials: list[Trial] = []
        self.printed = Counter[tuple[int, int, int]]()

    def add_event(self, kind: str, trial: Trial | None, data: dict[str, Any]) -> None:
        self.now += 0.5
        self.events.append(Event(len(self.events) + 1, kind, trial.id if trial else None, data, self.now))

    def trial(self, number: int, params: dict[str, Any]) -> Trial:
        trial = Trial(f"t-{number}", number, params, "queued", "queued", None, [], [], [], [], [], [])
        self.trials.append(trial)
        self.add_event("trial.created", trial, {"number": number, "params": params})
        return trial

    def begin(self, trial: Trial, attempt: int, step: int | None) -> None:
        self.add_event("trial.running", trial, {"attempt": attempt})
        uri = None if step is None else f"/checkpoints/{trial.number}/{attempt - 1}/{step}"
        row = Attempt(attempt, "agent-0", self.now, None, None, None, None, uri, step)
        trial.attempts.append(row)
        for rank in (0, 1):
            self._write(trial, attempt, rank, "resumed" if step else "start", step or 0)

    def report(self, trial: Trial, attempt: int, steps: range, *, saved: set[int], already: int = 0) -> None:
        """Report steps. Those up to `already` are in the curve from an earlier attempt and change nothing."""
        for sequence, step in enumerate(steps):
            made = self.now
            for rank in (0, 1):
                self._write(trial, attempt, rank, "report", step, made)
            if step > already:
                self._count(trial, attempt, sequence, step, made)
            if step in saved:
                uri = f"/checkpoints/{trial.number}/{attempt}/{step}"
                trial.checkpoints[:] = [Saved(step, attempt, uri)]
                trial.stored[:] = [uri]
                self.add_event("checkpoint", trial, {"attempt": attempt, "step": step, "uri": uri})
            for rank in (0, 1):
                self._write(trial, attempt, rank, "reported", step)

    def _count(self, trial: Trial, attempt: int, sequence: int, step: int, made: float) -> None:
        config = {**self.spec["config"], **trial.params}
        metrics = {"step": step, "loss": loss(config, step), "made": made}
        data = {"attempt": attempt, "sequence": sequence, "step": step, "metrics": metrics}
        self.add_event("report", trial, data)
        trial.curve.append(Point(step, attempt, sequence, metrics, self.now))
        trial.shown.append((step, metrics))
        for rung in (4, 8):
            if step == rung:
                self._decide(trial, attempt, rung, metrics["loss"])

    def _decide(self, trial: Trial, attempt: int, rung: int, value: float) -> None:
        """Add the decision at a rung: the first trial reaches it first; the second is worse."""
        first = self.trials[0].curve[rung - 1].metrics["loss"]
        alone = trial.number == 0
        facts: dict[str, Any] = {"decision": "continue" if alone else "stop", "milestone": rung, "value": value}
        facts |= {"cutoff": None if alone else first, "compared_count": 0 if alone else 1}
        facts |= {"attempt": attempt, "step": rung}
        trial.decisions.append(facts)
        self.add_event("decision", trial, facts)

    def end(self, trial: Trial, attempt: int, outcome: str, kind: str | None) -> None:
        self.add_event("attempt.ended", trial, {"attempt": attempt})
        row = trial.attempts[-1]
        facts = {**row.__dict__, "ended_at": self.now, "outcome": outcome, "kind": kind}
        facts["log"] = self._log(trial, attempt)
        trial.attempts[-1] = Attempt(**facts)
        status = "queued" if kind else {"completed": "completed", "stopped": "pruned"}[outcome]
        self.add_event(f"trial.{status}", trial, {"number": trial.number})
        self.trials[trial.number] = Trial(**{**trial.__dict__, "status": status, "shown_status": status})

    def _log(self, trial: Trial, attempt: int) -> tuple[str, ...]:
        """As many lines of each rank as it has printed."""
        own = [line for line in self.lines if (line.trial, line.attempt, line.did) == (trial.number, attempt, "report")]
        return tuple(f"[rank {line.rank}] {numbered_line(line.printed)}" for line in own)

    def _write(self, trial: Trial, attempt: int, rank: int, did: str, step: int, made: float | None = None) -> None:
        self.now += 0.01
        whose = (trial.number, attempt, rank)
        self.printed[whose] += did == "report"
        line = Line(self.now, did, step, ID, *whose, 100 + rank, made, printed=self.printed[whose])
        self.lines.append(line)

    def snapshot(self) -> Snapshot:
        for trial in self.trials:
            trial.mirrored.append(self._run(trial))
        best = self.trials[0].curve[-1].metrics["loss"]
        parent = MlflowRun("parent", "FINISHED", {}, {}, {"best_loss": [(1, best), (2, best)]})
        lost = self.trials[0].attempts[0]
        kill = PlannedFault(5, Target.WORKER, "killed", 0, 0)
        fault = Fault(kill, (lost.ended_at or 0) - 0.1, "rank 0 of trial 0", 100, attempt=(ID, 0, 1))
        experiment = Experiment(
            id=ID,
            name="pace-0",
            spec=self.spec,
            expected=self.expected,
            status="completed",
            end_reason="max_trials",
            event_count=len(self.events),
            trials=self.trials,
            events=self.events,
            shown_events=list(self.events),
            mirror_experiments=1,
            parents=[parent],
            foreign=[],
        )
        record = Record(began_at=1000, faults=[fault], ended=True, quiet=True)
        return Snapshot([experiment], self.lines, record)

    def _run(self, trial: Trial) -> MlflowRun:
        params = {name: str(value) for name, value in {**self.spec["config"], **trial.params}.items()}
        curves = {
            name: [(point.step, float(point.metrics[name])) for point in trial.curve]
            for name in ("step", "loss", "made")
        }
        return MlflowRun(f"run-{trial.number}", "FINISHED", params, {}, curves)
