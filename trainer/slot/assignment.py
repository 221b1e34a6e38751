"""What a slot needs of an assignment.

`trainer.wire.Assignment` describes the JSON for both sides, but needs pydantic, which a node of the cluster may not
have. `tests/trainer/slot/test_assignment.py` checks that the two agree.
"""

from dataclasses import dataclass
from typing import Any

from trainer.resources import WorkerGroup


@dataclass(frozen=True)
class TrainerSpec:
    """As `trainer.wire.Trainer`; what is not a number or text as JSON."""

    kind: str
    entrypoint: str | None
    command: list[str] | None
    metrics: dict[str, Any] | None
    package: str | None
    scaling: dict[str, Any]
    torch_config: dict[str, Any] | None
    datasets: dict[str, Any] | None
    data: dict[str, Any] | None
    validation: dict[str, Any] | None
    runtime_env: dict[str, Any] | None
    env: dict[str, str]
    secrets: dict[str, Any]
    reuse_workers: bool | int

    @property
    def workers(self) -> WorkerGroup:
        return WorkerGroup.of(self.scaling, self.validation)


@dataclass(frozen=True)
class Assignment:
    """As `trainer.wire.Assignment`. `resume` is the URI of the checkpoint to start from."""

    experiment_id: str
    trial: str
    attempt: int
    params: dict[str, Any]
    config: dict[str, Any]
    lease_token: str
    lease_seconds: float
    trainer: TrainerSpec
    run_name: str
    storage_path: str
    event_files: str | None
    resume: str | None
    keep_checkpoints: int
    earlier_checkpoints: tuple[str, ...]
    earlier_runs: tuple[str, ...]
    max_seconds: float | None
    kill_after_seconds: float | None
    stop_grace_seconds: float
    report_timeout_seconds: float | None
    max_log_bytes: int | None
    system_metrics_seconds: float | None
    traceparent: str | None

    @property
    def log_fields(self) -> dict[str, Any]:
        """What the lines of the log show while the attempt runs."""
        return {
            "experiment": self.experiment_id,
            "trial": self.trial,
            "attempt": self.attempt,
            "traceparent": self.traceparent,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Assignment":
        """From the service's answer. Fields that the slot does not use, or does not know yet, are ignored."""
        trainer, lease, resume = body["trainer"], body["lease"], body.get("resume")
        return cls(
            experiment_id=body["experiment_id"],
            trial=body["trial"],
            attempt=body["attempt"],
            params=body["params"],
            config=body["config"],
            lease_token=lease["token"],
            lease_seconds=float(lease["seconds"]),
            trainer=TrainerSpec(
                kind=trainer["kind"],
                entrypoint=trainer["entrypoint"],
                command=trainer.get("command"),
                metrics=trainer.get("metrics"),
                package=trainer.get("package"),
                scaling=trainer["scaling"],
                torch_config=trainer.get("torch_config"),
                datasets=trainer.get("datasets"),
                data=trainer.get("data"),
                validation=trainer.get("validation"),
                runtime_env=trainer.get("runtime_env"),
                env=trainer["env"],
                secrets=trainer.get("secrets", {}),
                reuse_workers=trainer["reuse_workers"],
            ),
            run_name=body["run_name"],
            storage_path=body["storage_path"],
            event_files=body.get("event_files"),
            resume=resume["uri"] if resume else None,
            keep_checkpoints=int(body["keep_checkpoints"]),
            earlier_checkpoints=tuple(body.get("earlier_checkpoints", ())),
            earlier_runs=tuple(body.get("earlier_runs", ())),
            max_seconds=body.get("max_seconds"),
            kill_after_seconds=body.get("kill_after_seconds"),
            stop_grace_seconds=float(body["stop_grace_seconds"]),
            report_timeout_seconds=body.get("report_timeout_seconds"),
            max_log_bytes=body.get("max_log_bytes"),
            system_metrics_seconds=body.get("system_metrics_seconds"),
            traceparent=body.get("traceparent"),
        )
