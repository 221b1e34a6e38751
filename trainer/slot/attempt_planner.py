"""What a slot's runner and its workers have to know of an attempt."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainer.client.addresses import ServiceAddresses
from trainer.command_template import filled_in
from trainer.process_log.setup import LogSettings
from trainer.ray_train.runners import RunPlan
from trainer.resources import scaling_without
from trainer.slot.assignment import Assignment
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.dataset_server_start import dataset_server_starter
from trainer.slot.nodes.slot_nodes import SlotNodes
from trainer.slot.user_package import UserPackage
from trainer.storage_uri import is_uri
from trainer.worker.rank_session import Job


@dataclass(frozen=True)
class AttemptPlanner:
    """Makes what the workers and the runner of an attempt get from the slot.

    `slot` is its actor's handle, `log_fields` what each line of its log shows.
    """

    name: str
    slot: Any
    addresses: ServiceAddresses
    package: UserPackage
    log_settings: LogSettings
    log_fields: Mapping[str, Any]

    def job(self, attempt: Attempt) -> Job:
        """Build the workers' `Job`. Call it after the package was downloaded."""
        assignment, package = attempt.assignment, self.package
        return Job(
            run=attempt.run_name,
            slot=self.slot,
            entrypoint=assignment.trainer.entrypoint,
            command=_command(assignment),
            config=assignment.config,
            package=package.content,
            package_name=package.filename,
            package_folder=package.folder,
            resume=assignment.resume,
            event_files=assignment.event_files,
            has_secrets=bool(assignment.trainer.secrets),
            log=asdict(self.log_settings) if self.log_settings.is_json else None,
            log_fields={**self.log_fields, **assignment.log_fields},
            system_metrics_seconds=assignment.system_metrics_seconds,
            max_log_bytes=assignment.max_log_bytes,
            has_validation=assignment.trainer.validation is not None,
            storage_is_uri=is_uri(assignment.storage_path),
        )

    def plan(self, attempt: Attempt, key: str, nodes: SlotNodes, on_success: Callable[[], None]) -> RunPlan:
        """For the runner. `key` names what the attempt needs of a slot, `nodes` which nodes it is not to use."""
        assignment = attempt.assignment

        def scaling() -> dict[str, Any]:
            return scaling_without(nodes.withheld.seconds_left(), assignment.trainer.scaling)

        return RunPlan(
            kind=assignment.trainer.kind,
            scaling=scaling(),
            validation=assignment.trainer.validation,
            env=assignment.trainer.env,
            name=assignment.run_name,
            storage_path=assignment.storage_path,
            is_cancelled=lambda: attempt.state.is_ending_now,
            on_success=on_success,
            start_dataset_server=dataset_server_starter(assignment, self.package, self.slot, key),
            runtime_env=self.package.runtime_env(assignment.trainer.runtime_env),
            torch_config=assignment.trainer.torch_config or {},
            on_start=attempt.group_starts,
            on_resize_possible=attempt.resize,
            lost_nodes=frozenset(nodes.lost),
            next_scaling=scaling,
        )


def _command(assignment: Assignment) -> dict[str, Any] | None:
    """Return the fields of a `Command` with values in place of the placeholders; None for other kinds."""
    trainer = assignment.trainer
    if trainer.command is None:
        return None
    metrics = trainer.metrics or {}
    return {
        "argv": filled_in(trainer.command, assignment.params, assignment.config),
        "params": assignment.params,
        "stdout": list(metrics.get("stdout", ())),
        "file": metrics.get("file"),
        "stop_grace_seconds": assignment.stop_grace_seconds,
    }
