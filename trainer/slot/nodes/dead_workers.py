"""What dead workers have left on their nodes."""

import contextlib
import time

import ray

from trainer.ray_train.cluster_state import is_node_alive
from trainer.ray_train.node_call import TASK_SECONDS, run_on_node
from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.attempt_state import Preempted
from trainer.slot.attempt.ranks import Remains
from trainer.slot.nodes.node_tasks import read_remains, remove_working_directory

GIVE_BACK_TASK_SECONDS = 1.0

VERDICT_SECONDS = 70.0
"""How long a node may be silent until it is no reason any more to doubt what another rank says.

With Ray's defaults, a node that vanishes is declared dead after five health checks, within 65 s.
"""

VERDICT_POLL_SECONDS = 1.0

NODE_SILENT = "[paceline: the node of this rank does not answer, so the rest of its output is missing]\n"

OF_TASK = (
    ray.exceptions.RayTaskError,
    ray.exceptions.RuntimeEnvSetupError,
    ray.exceptions.WorkerCrashedError,
)
"""Errors of a task that the node itself has told."""


def remains_of(attempt: Attempt, rank: int) -> Remains:
    """Read on the worker's node. One that Ray cannot reach counts as lost; one that is late is not asked again.

    Where another rank has failed, Ray's verdict on a late node is awaited: its death may be what that rank has noticed.
    An attempt that is given back does not wait for long: its slot is about to be killed.
    """
    worker, positions = attempt.ranks.started[rank], attempt.ranks.log_positions[rank]
    if worker.node in attempt.ranks.lost_nodes | attempt.ranks.late_nodes:
        return NODE_SILENT, None, None
    files = worker.oom_counter, worker.exit_file
    seconds = GIVE_BACK_TASK_SECONDS if isinstance(attempt.state.current, Preempted) else TASK_SECONDS
    asked_at = time.monotonic()
    try:
        return run_on_node(worker.node, read_remains, worker.log_positions, positions, *files, seconds=seconds)
    except ray.exceptions.GetTimeoutError:  # also an OSError; the node may only be busy
        is_lost = _is_declared_dead(attempt, worker.node, asked_at + VERDICT_SECONDS)
        (attempt.ranks.lost_nodes if is_lost else attempt.ranks.late_nodes).add(worker.node)
        return NODE_SILENT, None, None
    except (*OF_TASK, OSError):  # the node answers
        return NODE_SILENT, None, None
    except ray.exceptions.RayError:
        attempt.ranks.lost_nodes.add(worker.node)
        return NODE_SILENT, None, None


def _is_declared_dead(attempt: Attempt, node: str, deadline: float) -> bool:
    """Ray's verdict on a silent node, if another rank's failure may depend on it. Waits until the deadline.

    The wait may be longer than `report_timeout_seconds`, so the slot tells the service before it waits.
    """
    if not attempt.ranks.failures:
        return False
    while is_node_alive(node):
        if attempt.state.is_ending_now or time.monotonic() >= deadline:
            return False
        attempt.delivery.tell_ending()
        time.sleep(VERDICT_POLL_SECONDS)
    return True


def remove_working_directories(attempt: Attempt) -> None:
    """Remove the directories of workers that were killed; the others have removed theirs."""
    used = {(one.node, one.working_directory) for one in attempt.ranks.started.values() if one.working_directory}
    for node, directory in used:
        with contextlib.suppress(ray.exceptions.RayError):  # the node is gone
            run_on_node(node, remove_working_directory, directory, attempt.assignment.event_files)
