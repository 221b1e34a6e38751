"""Ray's pool of idle worker processes on one node: which are there, and starting more.

Ray gives an idle process to the first actor of the same job and runtime environment, and sets its GPUs only then. The
node's raylet is asked directly, because Ray's Python API has none of this.
"""

from dataclasses import dataclass
from typing import Any

import ray
from ray._private.grpc_utils import init_grpc_channel
from ray.core.generated.common_pb2 import PYTHON, WORKER
from ray.core.generated.node_manager_pb2 import GetNodeStatsRequest, PrestartWorkersRequest
from ray.core.generated.node_manager_pb2_grpc import NodeManagerServiceStub
from ray.runtime_env import RuntimeEnv

ANSWER_SECONDS = 2.0

KEEP_SECONDS = 10**9
"""Without this time Ray would end idle processes after a second. It ends them with their job in any case."""


@dataclass(frozen=True)
class JobWorkers:
    """The ids of processes of this process's job: all of them, and those that nothing has used yet."""

    all: frozenset[int]
    unused: frozenset[int]


class IdleWorkers:
    """The idle processes for actors with `runtime_env` on the node whose raylet listens at `address`.

    All methods raise grpc.RpcError if it does not answer.
    """

    def __init__(self, address: str, runtime_env: dict[str, Any]) -> None:
        self._channel = init_grpc_channel(address)
        self._raylet = NodeManagerServiceStub(self._channel)
        self._runtime_env = RuntimeEnv(**runtime_env).serialize()
        self._job = ray.get_runtime_context().get_job_id()

    def find(self) -> JobWorkers:
        answer = self._raylet.GetNodeStats(GetNodeStatsRequest(), timeout=ANSWER_SECONDS)
        own = [w for w in answer.core_workers_stats if w.worker_type == WORKER and w.job_id.hex() == self._job]
        return JobWorkers(frozenset(w.pid for w in own), frozenset(w.pid for w in own if _is_unused(w)))

    def start_one(self) -> None:
        """Ask for one without waiting for it. Ray may start none, for example while too many are starting."""
        request = PrestartWorkersRequest(
            language=PYTHON, job_id=bytes.fromhex(self._job), keep_alive_duration_secs=KEEP_SECONDS, num_workers=1
        )
        request.runtime_env_info.serialized_runtime_env = self._runtime_env
        self._raylet.PrestartWorkers(request, timeout=ANSWER_SECONDS)

    def close(self) -> None:
        self._channel.close()


def _is_unused(worker: Any) -> bool:
    has_run = worker.num_executed_tasks or worker.num_running_tasks or worker.task_queue_length
    return not has_run and ray.ActorID(worker.actor_id).is_nil()
