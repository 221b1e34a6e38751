"""The JSON objects in the service's answers, with the members by which a client tells them from foreign ones."""

from collections.abc import Mapping
from dataclasses import dataclass

ANY = object
"""The type of a member that may be null."""


@dataclass(frozen=True)
class Shape:
    """`members`: those that the commands need, with their types. `items`: the shape of those in a page."""

    members: Mapping[str, type]
    items: "Shape | None" = None

    def has(self, body: object) -> bool:
        if not isinstance(body, dict):
            return False
        has_members = all(name in body and isinstance(body[name], type_) for name, type_ in self.members.items())
        return has_members and (self.items is None or all(map(self.items.has, body["items"])))


def page_of(items: Shape) -> Shape:
    return Shape({"items": list, "next_cursor": ANY}, items)


EXPERIMENT = Shape({"id": str, "name": str, "status": str, "spec": dict, "counts": dict, "created_at": str})
EVENT = Shape({"seq": int, "kind": str, "trial": ANY, "data": dict, "at": str})
TRIAL = Shape({"id": str, "number": int, "status": str, "params": dict, "values": dict})
TRIAL_WITH_ATTEMPTS = Shape({**TRIAL.members, "checkpoint": ANY, "attempts": list})
FRONT = Shape({**page_of(TRIAL).members, "objectives": list, "count": int}, TRIAL)
REPORT = Shape({"step": int, "attempt": int, "metrics": dict, "at": str})
DECISION = Shape({"step": int, "decision": str, "rule": str, "value": ANY, "cutoff": ANY, "reason": str})
CHECKPOINT = Shape({"step": int, "attempt": int, "uri": str, "at": str})
PLANNED_CHECKPOINT = Shape({"trial_number": int, "step": int, "bytes": ANY, "action": str, "why": str})
CHECKPOINT_PLAN = Shape({**page_of(PLANNED_CHECKPOINT).members, "remove": ANY, "keep": ANY}, PLANNED_CHECKPOINT)
IMPORTANCE = Shape({"metric": str, "measure": str, "parameters": dict, "left_out": dict, "reason": ANY})
REPLAY = Shape({"metric": str, "stopped": list, "stopped_count": int, "trial_count": int, "best": ANY})
PREVIEW = Shape({"size": ANY, "dead": list, "sampler": dict, "samples": list})
READINESS = Shape({"ready": bool, "database": str, "loops": dict, "storage": str, "mlflow_url": ANY, "mlflow_lag": ANY})
AGENT = Shape({"name": str, "connected": bool, "nodes": list, "running": list, "last_seen_at": str})
