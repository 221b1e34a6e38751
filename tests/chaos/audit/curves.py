"""The curves: every step once, each value correct, and each point recorded in a journal."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.chaos.audit.attempts import LOST_KINDS, by_attempt
from tests.chaos.audit.ends import is_broken
from tests.chaos.evidence.generations import params_of_attempts
from tests.chaos.evidence.journals import Line
from tests.chaos.evidence.snapshot import Attempt, Experiment, Snapshot, Trial
from tests.chaos.user_code.curves import loss


def curves(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            yield from (f"{experiment.name}: trial {trial.number}: {what}" for what in _curve(experiment, trial))


def _curve(experiment: Experiment, trial: Trial) -> Iterator[str]:
    steps = [point.step for point in trial.curve]
    if steps != list(range(1, len(steps) + 1)):
        yield f"the steps of its curve are {steps}"
    params = params_of_attempts(experiment, trial)
    for point in trial.curve:
        config = {**experiment.spec["config"], **params.get(point.attempt, trial.params)}
        right = {"step": point.step, "loss": loss(config, point.step)}
        stored = {name: point.metrics.get(name) for name in right}
        if stored != right:
            yield f"step {point.step} has {stored}; it must be {right}"
    whole = _length(experiment, trial)
    if trial.status in {"completed", "failed"} and len(steps) != whole:
        yield f"it is {trial.status} with {len(steps)} of {whole} steps"


def _length(experiment: Experiment, trial: Trial) -> int:
    config = experiment.spec["config"]
    return int(config["breaks_at"] - 1 if is_broken(experiment, trial) else config["steps"])


def api_agrees(snapshot: Snapshot) -> Iterator[str]:
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            if trial.shown != [(point.step, point.metrics) for point in trial.curve]:
                yield f"{experiment.name}: trial {trial.number}: the API shows another curve than SQL has"


def journals_agree(snapshot: Snapshot) -> Iterator[str]:
    """Every point is in a journal; every report in a journal is stored, or was made again."""
    written = by_attempt(snapshot.lines)
    known = set()
    for experiment in snapshot.experiments:
        for trial in experiment.trials:
            lines = {one.number: written.get((experiment.id, trial.number, one.number), []) for one in trial.attempts}
            known |= {(experiment.id, trial.number, one.number) for one in trial.attempts}
            whose = f"{experiment.name}: trial {trial.number}"
            yield from (f"{whose}: {what}" for what in _unreported_points(trial, lines))
            for attempt in trial.attempts:
                violations = [
                    *_missing_reports(trial, attempt, lines[attempt.number]),
                    *_step_errors(attempt, lines[attempt.number]),
                ]
                yield from (f"{whose}, attempt {attempt.number}: {what}" for what in violations)
    deleted = {call.of for call in snapshot.calls if call.what == "delete"}
    for experiment_id, number, attempt_number in sorted(key for key in set(written) - known if key[0] not in deleted):
        yield f"trial {number}, attempt {attempt_number} of {experiment_id} was run, and SQL does not know of it"


def _unreported_points(trial: Trial, lines: dict[int, list[Line]]) -> Iterator[str]:
    """Yield the points that rank 0 of their attempt did not record before it reported."""
    for point in trial.curve:
        reports = [line for line in lines.get(point.attempt, []) if line.did == "report" and line.rank == 0]
        if (point.step, point.metrics.get("made")) not in {(line.step, line.made) for line in reports}:
            yield f"no journal has the report that is its step {point.step}"


def _missing_reports(trial: Trial, attempt: Attempt, lines: Sequence[Line]) -> Iterator[str]:
    """Yield the answered reports without a point. Only a lost attempt may have such, beyond the end of the curve.

    The point of a step belongs to this attempt or to an earlier one; to a later one only if this attempt was lost
    before its report arrived.
    """
    owner = {point.step: point.attempt for point in trial.curve}
    owner |= {point.step: point.attempt for point in trial.uncounted if point.attempt == attempt.number}
    lost = attempt.kind in LOST_KINDS
    for step in sorted({line.step for line in lines if line.did == "reported" and line.rank == 0}):
        if step not in owner and not lost:
            yield f"its report of step {step} is lost"
        elif owner.get(step, 0) > attempt.number and not lost:
            yield f"its report of step {step} is lost, and was made again by attempt {owner[step]}"


def _step_errors(attempt: Attempt, lines: Sequence[Line]) -> Iterator[str]:
    """In an attempt each rank reports each step once, in order; in a completed one, all ranks report the same steps."""
    taken: dict[int, list[int]] = {}
    for line in lines:
        steps = taken.setdefault(line.rank, [])
        if line.did == "reported":
            steps.append(line.step)
    for rank, steps in taken.items():
        if any(later != step + 1 for step, later in pairwise(steps)):
            yield f"rank {rank} reported the steps {steps}"
    if attempt.outcome == "completed" and len({tuple(steps) for steps in taken.values()}) > 1:
        yield f"its ranks reported different steps: {taken}"
