"""The Ray task that validates a checkpoint."""

from collections.abc import Mapping
from typing import Any

import ray

from trainer.ray_train.cluster_state import node_labels, unreserved_resources
from trainer.ray_train.processes.runtime_environments import worker_runtime_env
from trainer.resources import Bundle, bundle_of_validation
from trainer.slot.assignment import Assignment
from trainer.slot.checkpoints.validation_queue import Start
from trainer.slot.user_package import UserPackage
from trainer.worker.failures import LOST, Failure, headline
from trainer.worker.user_process import UserProcess
from trainer.worker.validation import ValidationJob, validate


class RayTask:
    """A running `validate`, as `trainer.slot.checkpoints.validation_queue.Task`."""

    def __init__(self, task: Any, bundle: Bundle, function: str) -> None:
        self._task = task
        self._bundle = bundle
        self._function = function

    def wait(self, seconds: float) -> bool:
        return bool(ray.wait([self._task], timeout=seconds)[0])

    def result(self, process: UserProcess | None) -> tuple[Mapping[str, Any], Failure | None]:
        try:
            metrics, failure = ray.get(self._task)
        except ray.exceptions.RayError as error:
            own = process.own_failure(f"the process of the validation function {self._function}") if process else None
            return {}, own or Failure(LOST, f"the validation's process has died: {headline(error)}")
        return metrics or {}, Failure(**failure) if failure is not None else None

    def cancel(self) -> None:
        ray.cancel(self._task, force=True)

    def why_no_room(self) -> str | None:
        labels = node_labels()
        for node, free in unreserved_resources().items():
            if self._bundle.fits(free, labels.get(node, {})):
                return None
        amounts = ", ".join(f"{amount:g} {name}" for name, amount in self._bundle.resources.items()) or "nothing"
        return (
            f"no node has room for the validation, which reserves {amounts} by trainer.validation.ray_remote_kwargs: "
            "the workers of trials hold the rest, or no node has the labels. Reserve less, or use fewer workers"
        )


def validation_starter(assignment: Assignment, package: UserPackage, slot: Any) -> Start:
    """For an attempt of this assignment. Each validation gets a new process."""
    trainer = assignment.trainer
    spec = trainer.validation or {}

    def start(uri: str, fn_kwargs: Mapping[str, Any]) -> RayTask:
        options = {name: value for name, value in spec["ray_remote_kwargs"].items() if value or name == "max_retries"}
        job = ValidationJob(
            run=assignment.run_name,
            slot=slot,
            entrypoint=spec["entrypoint"],
            package=package.content,
            package_name=package.filename,
            package_folder=package.folder,
            has_secrets=bool(trainer.secrets),
            log_rank=trainer.workers.max_workers,
            checkpoint=uri,
            fn_kwargs=fn_kwargs,
        )
        asked_for = package.runtime_env(trainer.runtime_env)
        runtime_env = worker_runtime_env(trainer.env, {"num_workers": 1}, asked_for)
        # Ray would give the process to a task of another experiment, whose modules may have the same names.
        task = ray.remote(max_calls=1)(validate).options(**{"num_cpus": 0, **options}, runtime_env=runtime_env)
        return RayTask(task.remote(job), bundle_of_validation(spec) or Bundle({}, {}), spec["entrypoint"])

    return start
