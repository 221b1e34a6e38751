"""Which assignments may run on the same slot, one after the other, with its workers."""

import hashlib
import json
from typing import Any


def slot_key(assignment: dict[str, Any]) -> str:
    """Assignments with the same key can run on the same slot: everything but the function's name must be the same."""
    trainer = {name: value for name, value in assignment["trainer"].items() if name != "entrypoint"}
    shape = json.dumps([assignment["experiment_id"], trainer], sort_keys=True)
    return hashlib.sha256(shape.encode()).hexdigest()[:16]
