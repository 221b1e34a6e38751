"""Gives schemathesis real leases, and keeps its calls from waiting. The configuration of a run loads this file."""

import itertools
import os
from typing import Any

import requests
import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.generation.meta import TestPhase

EXPERIMENTS = f"{os.environ['PACELINE_URL']}/v1/experiments"
SPEC = {
    "space": {"lr": {"type": "float", "low": 0.1, "high": 1.0}},
    "objectives": [{"metric": "loss", "direction": "minimize"}],
    "search": {"sampler": "random"},
    "trainer": {"kind": "external"},
    "limits": {"max_trials": 1_000_000, "parallelism": 1_000_000},
}
LEASED = ["send_reports", "send_heartbeat", "send_log", "finish_attempt"]
WAITING = {"claim_trial", "send_heartbeat"}
LARGE_DOCUMENTS = {"create_experiment", "preview_space"}

Lease = dict[str, Any]
_numbers = itertools.count()


@schemathesis.auth(refresh_interval=None).apply_to(operation_id=LEASED)
class LeaseOfATrial:
    """Each valid call on a trial gets a trial of its own, which runs, and its lease."""

    def __init__(self) -> None:
        self._experiment = self._created()

    def get(self, _: Any, __: Any) -> Lease:
        asked = self._asked()
        if asked.status_code != requests.codes.ok:  # a call has ended the experiment
            self._experiment = self._created()
            asked = self._asked()
        lease: Lease = asked.json()
        return lease

    def set(self, case: Any, lease: Lease, _: Any) -> None:
        if _is_valid(case, ParameterLocation.PATH):
            case.path_parameters["trial"] = lease["trial"]
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {lease['lease']['token']}"}

    def _asked(self) -> requests.Response:
        return requests.post(f"{EXPERIMENTS}/{self._experiment}/ask", timeout=120)

    def _created(self) -> str:
        name = f"endless-{next(_numbers)}"
        requests.post(EXPERIMENTS, json=SPEC | {"name": name}, timeout=120).raise_for_status()
        return name


@schemathesis.hook
def before_call(_: Any, case: Any, __: dict[str, Any]) -> None:
    """A valid wait is none."""
    waits = case.operation.definition.raw["operationId"] in WAITING and isinstance(case.body, dict)
    if waits and _is_valid(case, ParameterLocation.BODY):
        case.body.pop("wait_seconds", None)


@schemathesis.hook
def filter_case(_: Any, case: Any) -> bool:
    """Leave out YAML in the phase "coverage", whose thousands of documents are the same in JSON once they are parsed.

    The other phases send both formats, and this phase sends smaller documents in both.
    """
    is_large = case.operation.definition.raw["operationId"] in LARGE_DOCUMENTS
    is_boundary = case.meta is not None and case.meta.phase.name is TestPhase.COVERAGE
    return not (is_large and is_boundary and case.media_type == "application/yaml")


def _is_valid(case: Any, part: ParameterLocation) -> bool:
    if case.meta is None or part not in case.meta.components:
        return True
    return bool(case.meta.components[part].mode is GenerationMode.POSITIVE)
