"""The JSON objects in the service's answers, with the members by which a client tells them from foreign ones."""

from collections.abc import Mapping
from dataclasses import dataclass

ANY = object
"""The type of a member that may be null."""


@dataclass(frozen=True)
class Kind:
    """`members`: those that the commands need, with their types. `items`: the kind of those in a page."""

    members: Mapping[str, type]
    items: "Kind | None" = None

    def has(self, body: object) -> bool:
        if not isinstance(body, dict):
            return False
        has_members = all(name in body and isinstance(body[name], type_) for name, type_ in self.members.items())
        return has_members and (self.items is None or all(map(self.items.has, body["items"])))


def page_of(items: Kind) -> Kind:
    return Kind({"items": list, "next_cursor": ANY}, items)


EXPERIMENT = Kind({"id": str, "name": str, "status": str, "spec": dict, "counts": dict, "created_at": str})
EVENT = Kind({"seq": int, "kind": str, "trial": ANY, "data": dict, "at": str})
TRIAL = Kind({"id": str, "number": int, "status": str, "params": dict, "values": dict})
TRIAL_WITH_ATTEMPTS = Kind({**TRIAL.members, "checkpoint": ANY, "attempts": list})
FRONT = Kind({**page_of(TRIAL).members, "objectives": list, "count": int}, TRIAL)
REPORT = Kind({"step": int, "attempt": int, "metrics": dict, "at": str})
DECISION = Kind({"step": int, "decision": str, "rule": str, "value": ANY, "cutoff": ANY, "reason": str})
CHECKPOINT = Kind({"step": int, "attempt": int, "uri": str, "at": str})
PLANNED_CHECKPOINT = Kind({"trial_number": int, "step": int, "bytes": ANY, "action": str, "why": str})
CHECKPOINT_PLAN = Kind({**page_of(PLANNED_CHECKPOINT).members, "remove": ANY, "keep": ANY}, PLANNED_CHECKPOINT)
IMPORTANCE = Kind({"metric": str, "measure": str, "parameters": dict, "left_out": dict, "reason": ANY})
REPLAY = Kind({"metric": str, "stopped": list, "stopped_count": int, "trial_count": int, "best": ANY})
PREVIEW = Kind({"size": ANY, "dead": list, "sampler": dict, "samples": list})
READINESS = Kind({"ready": bool, "database": str, "loops": dict, "storage": str, "mlflow_url": ANY, "mlflow_lag": ANY})
AGENT = Kind({"name": str, "connected": bool, "nodes": list, "running": list, "last_seen_at": str})
