"""What the service has answered to a user's own program holds."""

from collections.abc import Iterator

from tests.chaos.audit.attempts import by_attempt
from tests.chaos.evidence.snapshot import Attempt, Snapshot


def answers(snapshot: Snapshot) -> Iterator[str]:
    """An accepted end is the attempt's outcome; one key gets one attempt. Reports are compared with the curves."""
    attempts: dict[tuple[str, int, int], Attempt] = {
        (experiment.id, trial.number, attempt.number): attempt
        for experiment in snapshot.experiments
        for trial in experiment.trials
        for attempt in trial.attempts
    }
    for key, lines in by_attempt(snapshot.lines).items():
        experiment_id, number, attempt_number = key
        whose = f"trial {number}, attempt {attempt_number} of {experiment_id}"
        for line in lines:
            outcome = attempts[key].outcome if key in attempts else None
            if line.did == "finished" and line.why != outcome:
                yield f"{whose}: the service accepted its end as {line.why}, and it has ended as {outcome}"
            if line.did == "asked twice":
                yield f"{whose}: one Idempotency-Key got several attempts: {line.why}"
