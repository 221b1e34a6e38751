"""How the workers of a run reach their shares of its datasets: through a process of its own, its dataset server."""

from collections.abc import Callable
from typing import Any, Protocol

from ray.train.v2._internal.execution.callback import WorkerGroupCallback


class ServerHandle(Protocol):
    """The dataset server of a run, for its workers and for the process that has started it."""

    def shard(self, name: str, rank: int) -> Any:
        """The answer for a worker: the iterator, or else why there is none."""

    def end(self) -> None: ...


StartServer = Callable[[list[str]], ServerHandle]
"""Starts the dataset server of a run; gets the ids of the nodes of its workers, by rank, and returns its handle."""


class ShardProvider:
    """Ray Train's access to the datasets in each worker."""

    def __init__(self, server: "ServerHandle") -> None:  # by name: this class travels by value with each attempt
        self._server = server

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        """The answer of the dataset server: the iterator, or else why there is none."""
        return self._server.shard(dataset_info.dataset_name, dataset_info.world_rank)


class DatasetServerCallback(WorkerGroupCallback):  # type: ignore[misc]
    """In place of Ray's own callback: starts the dataset server with the worker group, and ends it with the run."""

    def __init__(self, start: StartServer) -> None:
        self._start = start
        self._server: ServerHandle | None = None

    def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
        self._server = server = self._start([worker.metadata.node_id for worker in workers])
        return {"dataset_shard_provider": [ShardProvider(server)] * len(workers)}

    def after_worker_group_shutdown(self, worker_group_context: Any) -> None:  # noqa: ARG002
        self._end()

    def after_worker_group_abort(self, worker_group_context: Any) -> None:  # noqa: ARG002
        self._end()

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.end()


def blocked_seconds(iterator: Any) -> float:
    """For how long the thread that reads from this process's iterator has waited for its batches."""
    stats = getattr(iterator, "_iter_stats", None)
    return 0.0 if stats is None else float(stats.iter_initialize_s.get() + stats.iter_total_blocked_s.get())
