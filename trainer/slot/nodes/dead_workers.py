"""What dead workers have left on their nodes."""

import contextlib

import ray

from trainer.slot.attempt.attempt import Attempt
from trainer.slot.attempt.ranks import Remains
from trainer.slot.nodes.node_tasks import read_remains, remove_working_directory, run_on_node

NODE_SILENT = "[paceline: the node of this rank does not answer, so the rest of its output is missing]\n"


def remains_of(attempt: Attempt, rank: int) -> Remains:
    """Read on the worker's node. A node that does not answer counts as lost."""
    worker, positions = attempt.ranks.started[rank], attempt.ranks.log_positions[rank]
    try:
        files = worker.oom_counter, worker.exit_file
        return run_on_node(worker.node, read_remains, worker.log_positions, positions, *files)
    except (ray.exceptions.RayTaskError, OSError):  # the node answers
        return NODE_SILENT, None, None
    except ray.exceptions.RayError:
        attempt.ranks.lost_nodes.add(worker.node)
        return NODE_SILENT, None, None


def remove_working_directories(attempt: Attempt) -> None:
    """Those of workers that were killed; the others have removed theirs."""
    used = {(one.node, one.working_directory) for one in attempt.ranks.started.values() if one.working_directory}
    for node, directory in used:
        with contextlib.suppress(ray.exceptions.RayError):  # the node is gone
            run_on_node(node, remove_working_directory, directory, attempt.assignment.event_files)
