"""A process beside the ranks that runs the user's code, such as that of a validation: how it has ended itself."""

from dataclasses import dataclass

import ray
from ray.exceptions import RayError

from trainer.ray_train.node_call import run_on_node
from trainer.worker.failures import USER_ERROR, Failure
from trainer.worker.logs.log_follower import output_paths
from trainer.worker.process_end.exit_code import record_exit_code
from trainer.worker.process_end.own_end import read_own_end


@dataclass(frozen=True)
class UserProcess:
    """Where it runs: the id of its Ray node, the files of its output, and where it leaves its exit code, if it can."""

    node: str
    output: list[str]
    exit_file: str | None

    def own_failure(self, name: str) -> Failure | None:
        """The failure of the dead process, called `name`. None if it was killed, or its node does not answer."""
        whole = dict.fromkeys(self.output, 0)
        try:
            end = run_on_node(self.node, read_own_end, self.exit_file, whole)
        except (RayError, OSError):  # also GetTimeoutError
            return None
        if end is None:
            return None
        message, output = end.describe(name)
        return Failure(USER_ERROR, message, output or None)


def this_process(*, records_exit: bool = True) -> UserProcess:
    """The caller's, all of whose output is of one experiment.

    `records_exit`: its exit code is recorded from now on; not for a process that ends on purpose by one.
    """
    output = output_paths()
    log = next(iter(output), None) if records_exit else None
    return UserProcess(ray.get_runtime_context().get_node_id(), output, record_exit_code(log))
