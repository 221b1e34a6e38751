"""The guarantees that a run must keep. Each check yields a sentence for each violation."""

from collections.abc import Callable, Iterator

from tests.chaos.audit.answers import answers
from tests.chaos.audit.attempts import attempts, resumes
from tests.chaos.audit.curves import api_agrees, curves, journals_agree
from tests.chaos.audit.ends import clean_end, ends, space
from tests.chaos.audit.histories import events_whole, histories
from tests.chaos.audit.logs import logs
from tests.chaos.audit.losses import losses
from tests.chaos.audit.mlflow import mlflow_agrees
from tests.chaos.audit.stopping import stopping
from tests.chaos.audit.storage import storage
from tests.chaos.audit.user_calls import user_calls
from tests.chaos.evidence.snapshot import Snapshot

Check = Callable[[Snapshot], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    clean_end,
    ends,
    space,
    events_whole,
    histories,
    attempts,
    resumes,
    losses,
    storage,
    curves,
    api_agrees,
    journals_agree,
    logs,
    answers,
    user_calls,
    stopping,
    mlflow_agrees,
)


def audit(snapshot: Snapshot) -> list[str]:
    """Return all violations. If experiments still run, only check that: their data changes while it is read."""
    checks = CHECKS if snapshot.record.ended else (clean_end, ends)
    return [violation for check in checks for violation in check(snapshot)]
