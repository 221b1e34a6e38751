"""What `trainer/ray_train` assumes about Ray's nodes, actors and state, and about Ray Data."""

# ruff: noqa: PLC0415 - Ray is imported when such a test runs, not when tests are collected

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.trainer.ray_train.signatures import parameters, source
from trainer.ray_train.processes.fork_server import RUN_SETTINGS

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes seconds


def test_a_node_starts_its_dashboard_by_a_function_of_services_and_lives_without_the_process() -> None:
    from ray._private.node import Node

    start = source(Node.start_api_server)
    assert "self._webui_url, process_info = ray._private.services.start_api_server(" in start
    assert "if process_info is not None:" in start


def test_no_process_of_a_node_inherits_the_settings_of_services_and_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import services

    from trainer.ray_train.processes.node_start import change

    kept = {"PACELINE_STACK": "tag", "PACELINE_OOM_COUNTER": "/file", "WANDB_MODE": "offline"}
    for name, value in {**kept, "PACELINE_TOKEN": "secret", "PACELINE_DATABASE_URL": "secret"}.items():
        monkeypatch.setenv(name, value)
    change(SimpleNamespace(include_dashboard=True), True)
    assert [name for name, value in os.environ.items() if value == "secret"] == []
    assert kept.items() <= os.environ.items()
    assert "modified_env = os.environ.copy()" in source(services.start_ray_process)


def test_a_worker_process_knows_the_socket_of_its_raylet() -> None:
    from ray._private import worker, workers
    from ray._private.node import Node

    assert isinstance(Node.raylet_socket_name, property)
    assert hasattr(worker, "_global_node")
    program = Path(str(workers.__path__[0]), "default_worker.py").read_text()
    assert "ray._private.worker._global_node = node" in program


def test_the_clusters_state_is_known_without_a_dashboard() -> None:
    from ray._private.state import GlobalState, available_resources_per_node, state

    assert isinstance(state, GlobalState)
    assert callable(available_resources_per_node)
    assert "if the timestamp is 0" in (GlobalState.get_draining_nodes.__doc__ or "")
    assert callable(state._connect_and_get_accessor)


def test_the_resources_of_the_largest_cluster_are_known_only_where_it_autoscales(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray._private.state import GlobalState, state
    from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig
    from ray.train.v2._internal.execution.worker_group import worker_group

    from trainer.ray_train.cluster_state import autoscales

    pool = NodeGroupConfig(resources={"CPU": 4}, min_count=0, max_count=2)
    for config, known in ((None, False), (ClusterConfig(), False), (ClusterConfig(node_group_configs=[pool]), True)):
        monkeypatch.setattr(state, "get_cluster_config", lambda config=config: config)
        assert autoscales() is known
    assert "return None" in source(GlobalState.get_cluster_config)
    assert "ray_state.get_max_resources_from_cluster_config()" in source(worker_group)


def test_a_placement_groups_record_names_its_creator_its_namespace_and_what_it_needs() -> None:
    from ray.core.generated.common_pb2 import Bundle, PlacementStrategy
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData

    fields = {field.name for field in PlacementGroupTableData.DESCRIPTOR.fields}
    assert {"placement_group_id", "ray_namespace", "state", "creator_actor_dead", "creator_actor_id"} <= fields
    assert {"bundles", "strategy"} <= fields
    assert {"unit_resources", "label_selector"} <= {field.name for field in Bundle.DESCRIPTOR.fields}
    assert set(PlacementStrategy.keys()) == {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"}
    assert PlacementGroupTableData.REMOVED != PlacementGroupTableData.PENDING


def test_an_actors_handle_knows_its_id() -> None:
    """As the record of a placement group names its creator, by which `remove_groups_of` finds it."""
    import ray
    from ray.actor import ActorHandle

    assert "return self._ray_actor_id" in source(ActorHandle._actor_id.fget)
    assert ray.ActorID.nil().binary() == b"\xff" * ray.ActorID.size()


def test_a_node_can_be_asked_for_worker_processes_and_for_those_that_it_has() -> None:
    """As `trainer/ray_train/processes/idle_workers.py` does. That it works is tested in `agent/test_prestart.py`."""
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated.common_pb2 import PYTHON, WORKER, CoreWorkerStats
    from ray.core.generated.node_manager_pb2 import GetNodeStatsRequest, PrestartWorkersRequest
    from ray.core.generated.node_manager_pb2_grpc import NodeManagerServiceStub

    assert {"address"} <= set(parameters(init_grpc_channel))
    stub = NodeManagerServiceStub(init_grpc_channel("127.0.0.1:1"))
    assert stub.GetNodeStats, GetNodeStatsRequest()
    assert stub.PrestartWorkers
    PrestartWorkersRequest(language=PYTHON, job_id=b"", keep_alive_duration_secs=1, num_workers=1)
    CoreWorkerStats(
        worker_type=WORKER,
        job_id=b"",
        actor_id=b"",
        pid=1,
        num_executed_tasks=0,
        num_running_tasks=0,
        task_queue_length=0,
    )


def test_ray_runs_a_workers_command_in_bash_and_names_its_own_python_on_the_raylets_command_line() -> None:
    """What the launcher of `processes/fork_server.py` needs, besides the raylet's id in RAY_RAYLET_PID."""
    from ray._private import services
    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray._private.workers import default_worker

    assert 'executable = ["exec", self.py_executable]' in source(RuntimeEnvContext.exec_worker)
    assert 'os.execvp("bash", args=["bash", "-c", " ".join(cmd)])' in source(RuntimeEnvContext.exec_worker)
    assert "--python_worker_command=" in source(services.start_raylet)
    for option in ("--node-id", "--temp-dir", "--session-name"):
        assert f'"{option}"' in source(default_worker)


def test_actor_classes_get_their_random_ids_through_a_name_of_ray_actor() -> None:
    import ray.actor

    assert "ActorClassID.from_random()" in source(ray.actor)
    assert ray.actor.ActorClassID(b"x" * ray.actor.ActorClassID.size()).hex() == "78" * ray.actor.ActorClassID.size()


def test_tasks_and_actors_ask_one_function_of_a_module_for_the_resources_in_their_options() -> None:
    import ray._common.utils
    import ray.actor
    import ray.remote_function

    assert parameters(ray._common.utils.resources_from_ray_options)
    for module in (ray.actor, ray.remote_function):
        assert "ray._common.utils.resources_from_ray_options(" in source(module)


def test_ray_data_asks_its_cluster_autoscaler_for_the_resources_that_it_may_use() -> None:
    import ray.data._internal.cluster_autoscaler as autoscaling
    from ray.data._internal.cluster_autoscaler import RateBasedClusterAutoscaler
    from ray.data._internal.execution.streaming_executor import StreamingExecutor

    assert autoscaling.DEFAULT_CLUSTER_AUTOSCALER_VERSION == "RATE_BASED"
    assert parameters(RateBasedClusterAutoscaler.get_total_resources) == ["self"]
    assert "self._cluster_autoscaler.get_total_resources()" in source(StreamingExecutor)


def test_the_variables_that_ray_data_gives_the_processes_of_a_shuffle_are_not_read_at_an_import() -> None:
    """So they may be forked; else each of them would import torch."""
    from ray.data._internal.execution.operators import hash_shuffle_v2 as maps
    from ray.data._internal.execution.operators.shuffle_operators import (
        shuffle_reduce_operator as reduces,
    )

    given = {**maps._SHUFFLE_MAP_RUNTIME_ENV["env_vars"], **reduces._SHUFFLE_REDUCE_RUNTIME_ENV["env_vars"]}
    assert all(name.startswith(RUN_SETTINGS) for name in given)
    assert not any("environ" in source(module) for module in (maps, reduces))


def test_a_split_starts_its_coordinator_by_a_name_of_its_module_with_the_dataset_first() -> None:
    from ray.data._internal.iterator import stream_split_iterator

    create = source(stream_split_iterator.StreamSplitDataIterator.create)
    assert re.search(r"SplitCoordinator\.options\(.*?\)\.remote\(base_dataset, n, locality_hints\)", create, re.DOTALL)


def test_the_iterator_of_a_split_adds_up_for_how_long_its_reader_is_blocked() -> None:
    from ray.data._internal.block_batching.iter_batches import BatchIterator
    from ray.data._internal.iterator.stream_split_iterator import StreamSplitDataIterator
    from ray.data._internal.stats import DatasetStats

    from trainer.ray_train.datasets.dataset_server_callback import blocked_seconds

    iterator = StreamSplitDataIterator(None, 0, 1)
    assert isinstance(iterator._iter_stats, DatasetStats)
    assert "return gen_blocks(), self._iter_stats, None" in source(StreamSplitDataIterator._to_ref_bundle_iterator)
    assert "self._stats.iter_total_blocked_s.timer()" in source(BatchIterator.get_next_batch_context)
    assert blocked_seconds(iterator) == 0
    iterator._iter_stats.iter_initialize_s.add(1.0)
    iterator._iter_stats.iter_total_blocked_s.add(0.5)
    assert blocked_seconds(iterator) == 1.5


def test_the_timer_of_these_waits_can_be_replaced_by_one_that_knows_the_present_wait() -> None:
    from ray import cloudpickle
    from ray.data._internal.block_batching.iter_batches import BatchIterator
    from ray.data._internal.iterator.stream_split_iterator import StreamSplitDataIterator
    from ray.data._internal.stats import Timer

    from trainer.ray_train.datasets.batch_wait import timing_waits

    iterator = StreamSplitDataIterator(None, 0, 1)
    timer = timing_waits(iterator)
    assert isinstance(timer, Timer)
    assert timer.since is None
    with BatchIterator(iter(()), stats=iterator._iter_stats).get_next_batch_context():
        assert timer.since is not None
    assert timer.since is None
    assert timer.get() > 0
    assert cloudpickle.loads(cloudpickle.dumps(iterator))._iter_stats.iter_total_blocked_s.get() == timer.get()
