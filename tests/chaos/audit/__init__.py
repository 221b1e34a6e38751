"""What must be true of a run once it is over. Each check yields sentences, one for each thing that is not."""

from collections.abc import Callable, Iterator

from tests.chaos.audit.attempts import attempts, losses, resumes
from tests.chaos.audit.curves import api_agrees, curves, journals_agree
from tests.chaos.audit.ends import clean_end, ends, space
from tests.chaos.audit.histories import events_whole, histories
from tests.chaos.audit.mirrored import mirrored
from tests.chaos.audit.stopping import stopping
from tests.chaos.audit.storage import storage
from tests.chaos.snapshot import Snapshot

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
    stopping,
    mirrored,
)


def audit(snapshot: Snapshot) -> list[str]:
    """Every violation; empty when the promises were kept. What runs still changes while it is read: then only that."""
    checks = CHECKS if snapshot.record.ended else (clean_end, ends)
    return [violation for check in checks for violation in check(snapshot)]
