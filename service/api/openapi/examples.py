"""Bodies and parameters that work as they stand, for OpenAPI. A test sends each of them."""

from typing import Any

from service.api.http.bodies.body_reader import JSON
from service.api.http.bodies.document_body import MERGE_PATCH, YAML

_SPACE: dict[str, Any] = {
    "lr": {"type": "float", "low": 0.0001, "high": 1.0, "log": True},
    "layers": {"type": "int", "low": 1, "high": 4},
    "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
}
_LOSS = [{"metric": "loss", "direction": "minimize"}]
_SPEC = {
    "name": "by-hand",
    "space": _SPACE,
    "objectives": _LOSS,
    "trainer": {"kind": "external"},
    "limits": {"max_trials": 20, "parallelism": 4},
}
_SPEC_AS_YAML = """\
name: by-hand
space:
  lr: {type: float, low: 1.0e-4, high: 1.0, log: true}
objectives: [{metric: loss, direction: minimize}]
trainer: {kind: external}
"""
_CHANGES = {"limits": {"max_trials": 40}}
_INSTANCE = {"place": "node-1", "pid": 4711, "started": 123456}
_NODE = {"total": {"CPU": 8}, "free": {"CPU": 8}}

BODIES: dict[str, dict[str, Any]] = {
    "create_experiment": {JSON: _SPEC, YAML: _SPEC_AS_YAML, "multipart/form-data": {"spec": _SPEC_AS_YAML}},
    "change_experiment": {MERGE_PATCH: _CHANGES, JSON: _CHANGES, YAML: "limits: {max_trials: 40}\n"},
    "enqueue_trials": {
        JSON: {"params": {"lr": 0.1, "layers": 2, "optimizer": "sgd"}},
        YAML: "params: {lr: 0.1, layers: 2, optimizer: sgd}\n",
    },
    "preview_space": {JSON: {"space": _SPACE, "n": 3}, YAML: "space: {lr: {type: float, low: 0.1, high: 1.0}}\nn: 3\n"},
    "replay_early_stopping": {JSON: {"early_stopping": {"rule": "median"}}},
    "claim_trial": {JSON: {"request_id": "7d4f", "nodes": [_NODE], "instance": _INSTANCE}},
    "release_agent_name": {JSON: _INSTANCE},
    "send_deletion_results": {JSON: {"deleted": [1], "failed": []}},
    "send_reports": {JSON: {"reports": [{"sequence": 0, "step": 1, "metrics": {"loss": 0.5}}]}},
    "send_heartbeat": {JSON: {"wait_seconds": 0}},
    "send_log": {JSON: {"rank": 0, "offset": 0, "text": "epoch 1\n"}},
    "finish_attempt": {JSON: {"outcome": "completed"}},
}
"""By operation id and media type."""

PARAMETERS: dict[str, Any] = {
    "experiment": "by-hand",
    "trial": "t-8da5cc1028d2",
    "package": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "step": 20,
    "name": "gpu-box-1",
    "tag": "team:vision",
    "filename": "train.py",
    "Idempotency-Key": "7d4f5c0a",
    "Range": "bytes=4096-",
    "If-Range": '"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"',
}
"""By name, in all calls alike."""
