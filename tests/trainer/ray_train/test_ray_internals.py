"""What `trainer/ray_train` assumes about Ray's internals, one by one.

When Ray is upgraded and one of these fails, its name says which assumption no longer holds. `reuse_workers: false`
needs only those marked as the worker's, and those of the cluster's state. `tests/architecture/test_ray_internals.py`
checks that every internal that is used is named here.
"""

# ruff: noqa: PLC0415 - Ray is imported when such a test runs, not when tests are collected

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from trainer.ray_train.processes.fork_server import RUN_SETTINGS

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds


def source(thing: Any) -> str:
    return inspect.getsource(thing)


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_a_node_starts_its_dashboard_by_a_function_of_services_and_lives_without_the_process() -> None:
    from ray._private.node import Node

    start = source(Node.start_api_server)
    assert "self._webui_url, process_info = ray._private.services.start_api_server(" in start
    assert "if process_info is not None:" in start


def test_the_controller_creates_its_worker_group_through_a_replaceable_class_attribute() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert hasattr(TrainController, "worker_group_cls")
    call = re.search(r"self\.worker_group_cls\.create\((.*?)\)\n", source(TrainController), re.DOTALL)
    assert call is not None
    assert re.findall(r"(\w+)=", call.group(1)) == ["train_run_context", "worker_group_context", "callbacks"]


def test_a_save_is_refused_in_known_words_where_the_folder_of_the_run_is_missing() -> None:
    from ray.train.v2._internal.execution.storage import StorageContext

    from trainer.ray_train.train_session import NO_STORAGE

    assert "self._check_validation_file()" in source(StorageContext.persist_current_checkpoint)
    assert f'raise RuntimeError(\n                f"{NO_STORAGE} with' in source(StorageContext._check_validation_file)


def test_a_checkpoint_is_saved_by_a_function_that_can_be_replaced() -> None:
    from ray.train.v2._internal.execution import storage

    from trainer.ray_train.file_copy import save_files

    saving = source(storage.StorageContext.persist_current_checkpoint)
    call = re.search(r"\n +_pyarrow_fs_copy_files\((.*?)\n +\)", saving, re.DOTALL)
    assert call is not None
    passed = re.findall(r"(\w+)=", call.group(1))
    assert passed == ["source", "destination", "source_filesystem", "destination_filesystem"]
    assert passed == parameters(save_files)[:4] == parameters(storage._pyarrow_fs_copy_files)[:4]


def test_the_lock_of_a_directory_is_a_file_elsewhere_that_processes_wait_for(tmp_path: Path) -> None:
    from filelock import Timeout
    from ray.air._internal.filelock import TempFileLock

    with TempFileLock(str(tmp_path / "some")):
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(Timeout), TempFileLock(str(tmp_path / "some"), timeout=0):
            pytest.fail("two hold it")


def test_the_controller_polls_in_one_coroutine_after_a_pause_counted_from_the_last_poll() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert inspect.iscoroutinefunction(TrainController._poll_workers)
    assert "time_monotonic() - self._latest_poll_time" in source(TrainController._poll_workers)


def test_the_controller_reads_whether_to_watch_for_preemption_only_in_its_constructor() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert "ENABLE_PREEMPTION_WATCHER_ENV_VAR" in source(TrainController.__init__)


def test_the_controller_configures_its_loggers_only_in_its_constructor_and_only_if_enabled() -> None:
    from ray.train.v2._internal.constants import ENABLE_CONTROLLER_STRUCTURED_LOGGING_ENV_VAR
    from ray.train.v2._internal.execution.controller import TrainController

    from trainer.ray_train.warm_group import CONTROLLER_LOGS

    assert ENABLE_CONTROLLER_STRUCTURED_LOGGING_ENV_VAR == CONTROLLER_LOGS
    assert "ENABLE_CONTROLLER_STRUCTURED_LOGGING_ENV_VAR" in source(TrainController.__init__)
    assert source(TrainController).count("configure_controller_logger") == 1


def test_the_controller_ends_the_run_when_a_poll_finds_all_workers_finished_without_an_error() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert parameters(TrainController._is_training_succeeded) == ["worker_group_status"]
    assert "if self._is_training_succeeded(worker_group_status):" in source(TrainController._step)


def test_only_rays_state_export_uses_the_path_of_a_workers_log() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert "log_file_path" in source(WorkerGroup._decorate_worker_log_file_paths)
    assert source(WorkerGroup).count("log_file_path") == source(WorkerGroup._decorate_worker_log_file_paths).count(
        "log_file_path"
    ) + source(WorkerGroup).count("self._decorate_worker_log_file_paths")


def test_torchs_backend_ignores_the_results_of_its_calls_to_all_workers() -> None:
    from ray.train.torch.config import _TorchBackend

    lines = [line.strip() for line in source(_TorchBackend.on_start).splitlines() if ".execute(" in line]
    assert len(lines) == 2
    assert all(line.startswith("worker_group.execute(") for line in lines)


def test_torchs_backend_asks_the_first_worker_for_its_address_before_it_does_anything() -> None:
    from ray.train._internal.utils import get_address_and_port
    from ray.train.torch import config

    asked = source(config._TorchBackend.on_start).partition("worker_group.execute_single(")[2]
    assert asked.split()[:2] == ["0,", "get_address_and_port"]
    assert config.get_address_and_port is get_address_and_port


def test_torchs_backend_destroys_a_process_group_only_if_it_exists() -> None:
    from ray.train.torch import config
    from torch.distributed import distributed_c10d

    assert "if destroy_process_group and dist.is_initialized():" in source(config._shutdown_torch)
    assert isinstance(distributed_c10d._world.pg_map, dict)


def test_a_scaling_policy_is_constructed_from_a_configuration_and_requests_resources_for_each_run() -> None:
    from ray.train.v2._internal.execution.scaling_policy import ScalingPolicy
    from ray.train.v2._internal.execution.scaling_policy.factory import create_scaling_policy
    from ray.train.v2.api.config import ScalingConfig

    policy = create_scaling_policy(ScalingConfig(num_workers=2))
    assert parameters(type(policy)) == ["scaling_config"]
    assert "self._coordinator_client = " in source(ScalingPolicy.after_controller_start)
    shutdown = source(ScalingPolicy.before_controller_shutdown)
    assert shutdown.splitlines()[-1].strip() == "self._cancel_resource_request()"
    assert "maybe_send_resource_request()" in source(type(policy).make_decision_for_running_worker_group)


def test_rays_elastic_policy_counts_workers_in_one_method_and_returns_a_resize_or_no_decision() -> None:
    from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, NoopDecision, ResizeDecision
    from ray.train.v2._internal.execution.scaling_policy.factory import create_scaling_policy
    from ray.train.v2.api.config import ScalingConfig

    policy = create_scaling_policy(ScalingConfig(num_workers=(1, 3), elastic_resize_monitor_interval_s=5))
    assert type(policy) is ElasticScalingPolicy
    assert parameters(type(policy)) == ["scaling_config"]
    assert policy._count_possible_workers({"a": {"CPU": 2.0}, "b": {"CPU": 8.0}}) == 3
    assert policy._count_possible_workers({}) == 0
    decision = policy._get_resize_decision(2)
    assert isinstance(decision, ResizeDecision)
    assert decision.num_workers == 2
    running = source(ElasticScalingPolicy.make_decision_for_running_worker_group)
    assert "num_workers = self._count_possible_workers(reserved_resources)" in running
    assert "if num_workers == worker_group_state.num_workers:" in running
    assert "maybe_send_resource_request()" in source(ElasticScalingPolicy.make_decision_for_non_running_worker_group)
    assert NoopDecision() is not None


def test_the_controller_asks_an_undecided_policy_again_without_a_pause() -> None:
    """So `WarmController._step` pauses. A state that was not decided about is returned as the same object."""
    from ray.train.v2._internal.execution.controller import TrainController

    assert inspect.iscoroutinefunction(TrainController._step)
    decides = source(TrainController._make_and_handle_scaling_decision_for_non_running_worker_group)
    assert "next_state = controller_state" in decides
    assert "sleep" not in source(TrainController.run) + source(TrainController._run_control_loop_iteration)


def test_a_run_of_the_controller_ends_without_ending_its_process() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert inspect.iscoroutinefunction(TrainController.run)
    assert "exit_actor" not in source(TrainController.run)
    assert "exit_actor" not in source(TrainController._shutdown)


def test_a_trainers_fit_passes_its_controllers_arguments_to_one_method() -> None:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    assert parameters(DataParallelTrainer._initialize_and_run_controller) == ["self", "controller_init_kwargs"]
    assert "callbacks=self._create_default_callbacks()" in source(DataParallelTrainer.fit)


def test_the_callbacks_left_out_are_among_the_default_ones() -> None:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from trainer.ray_train.trainer_classes import OMITTED_CALLBACKS

    made = source(DataParallelTrainer._create_default_callbacks)
    assert [c.__name__ for c in OMITTED_CALLBACKS if c.__name__ not in made] == []


def test_a_worker_group_creates_placement_group_and_workers_in_separate_methods() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert parameters(WorkerGroup._create_placement_group) == ["self", "scaling_config", "worker_group_context"]
    started = source(WorkerGroup._start_impl)
    assert "pg_handle = self._create_placement_group(" in started
    assert "workers = self._create_workers(" in started
    assert "pg_handle.wait(self._worker_group_start_timeout_s)" in started


def test_a_worker_group_finds_the_synchronization_actor_by_a_name_of_its_module() -> None:
    from ray.train.v2._internal.execution.worker_group import worker_group

    assert "sync_actor = SynchronizationActor.options(" in source(worker_group.WorkerGroup._start_impl)
    assert hasattr(worker_group, "SynchronizationActor")


def test_a_worker_group_creates_its_workers_from_a_replaceable_class_attribute() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import RayTrainWorker, WorkerGroup

    assert WorkerGroup._worker_cls is RayTrainWorker
    assert "(self._worker_cls)" in source(WorkerGroup._create_workers)


def test_no_worker_reads_its_backends_configuration() -> None:
    from ray.train.v2._internal.execution import context, train_fn_utils
    from ray.train.v2._internal.execution.worker_group import worker
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert source(context).count("backend_config") == 1
    assert "backend_config" not in source(worker) + source(train_fn_utils)
    assert parameters(WorkerGroup._init_train_context_on_workers)[:2] == ["self", "workers"]


def test_a_worker_group_changes_to_its_working_directory_by_one_call_only() -> None:
    from ray.train.v2._internal.callbacks import WorkingDirectorySetupCallback

    change = source(WorkingDirectorySetupCallback.after_execution_group_start)
    assert re.findall(r"execution_group\.(.*)", change) == ["execute(chdir_to_working_dir)"]


def test_a_worker_configures_its_loggers_if_enabled_and_filters_by_its_context() -> None:
    from ray.train.v2._internal.constants import ENABLE_WORKER_STRUCTURED_LOGGING_ENV_VAR
    from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
    from ray.train.v2._internal.logging.logging import TrainContextFilter

    from trainer.ray_train.worker_actor import WORKER_LOGS

    assert ENABLE_WORKER_STRUCTURED_LOGGING_ENV_VAR == WORKER_LOGS
    prepared = source(RayTrainWorker.init_train_context)
    assert prepared.index("ENABLE_WORKER_STRUCTURED_LOGGING_ENV_VAR") < prepared.index("configure_worker_logger")
    assert parameters(TrainContextFilter) == ["context"]


def test_a_poll_of_a_worker_tells_whether_its_training_thread_lives() -> None:
    from ray.train.v2._internal.execution.context import ExecutionContext
    from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner
    from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker

    assert "execution_context.training_thread_runner.is_running()" in source(RayTrainWorker.poll_status)
    assert "self._thread.is_alive()" in source(ThreadRunner.is_running)
    assert {"result_queue", "training_thread_runner"} <= ExecutionContext.__annotations__.keys()


def test_a_worker_groups_shutdown_ends_its_processes_through_its_state_alone() -> None:
    from ray.train.v2._internal.execution.worker_group.state import WorkerGroupState
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert "self._worker_group_state.shutdown()" in source(WorkerGroup.shutdown)
    assert "kill" not in source(WorkerGroup.shutdown)
    fields = {field.name for field in dataclasses.fields(WorkerGroupState)}
    assert fields == {"start_time", "placement_group_handle", "workers", "sync_actor"}


def test_a_placement_group_handle_has_the_methods_we_stand_in_for() -> None:
    from ray.train.v2._internal.execution.worker_group.placement_group_handle import PlacementGroupHandle

    assert PlacementGroupHandle.__abstractmethods__ == {"placement_group", "ready", "wait", "shutdown"}


def test_the_controllers_checkpoint_manager_lists_the_registered_checkpoints() -> None:
    from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
    from ray.train.v2._internal.execution.controller import TrainController

    assert "self._checkpoint_manager = CheckpointManager(" in source(TrainController.__init__)
    assert "for tr in self._checkpoint_results" in source(CheckpointManager.get_all_reported_checkpoints)
    assert "for checkpoint_result in self._checkpoint_results" in source(CheckpointManager._save_state)


def test_a_controller_callback_is_called_when_the_controller_starts() -> None:
    from ray.train.v2._internal.execution.callback import ControllerCallback
    from ray.train.v2._internal.execution.controller import TrainController

    assert parameters(ControllerCallback.after_controller_start) == ["self", "train_run_context"]
    assert '"after_controller_start", self._train_run_context' in source(TrainController._start)


def test_a_report_callback_is_called_once_for_each_report_of_all_ranks() -> None:
    from ray.train.v2._internal.execution.callback import ReportCallback

    assert parameters(ReportCallback.after_report) == ["self", "training_report", "metrics"]


def test_a_storage_context_is_constructed_from_a_path_and_a_name_and_writes_a_file() -> None:
    from ray.train.v2._internal.execution.storage import StorageContext

    assert parameters(StorageContext)[:2] == ["storage_path", "experiment_dir_name"]
    assert "self._create_validation_file()" in source(StorageContext.__init__)


def test_in_a_worker_the_context_can_get_new_pools_and_a_checkpoint() -> None:
    from ray.train.v2._internal.execution import context

    names = {field.name for field in dataclasses.fields(context.TrainContext)}
    assert {"checkpoint", "report_order_condition", "checkpoint_upload_threadpool"} <= names
    assert not context.TrainContext.__dataclass_params__.frozen
    assert context.MAX_CHECKPOINT_UPLOAD_THREADS >= 1


def test_in_a_worker_report_can_be_replaced_and_blocks_until_the_checkpoint_is_saved() -> None:
    from ray.train.v2._internal.execution import train_fn_utils
    from ray.train.v2._internal.execution.context import TrainContext

    assert parameters(train_fn_utils.DistributedTrainFnUtils.report)[:5] == [
        "self",
        "metrics",
        "checkpoint",
        "checkpoint_dir_name",
        "checkpoint_upload_mode",
    ]
    assert callable(train_fn_utils.set_train_fn_utils)
    assert "self.checkpoint = training_report.checkpoint" in source(TrainContext._wait_then_report)


def test_in_a_worker_print_can_be_restored() -> None:
    from ray.train.v2._internal.logging import patch_print

    assert callable(patch_print._original_print)


def test_torchs_backend_is_chosen_by_the_trainer_and_set_up_on_start() -> None:
    from ray.train.torch import config

    assert parameters(config._TorchBackend.on_start) == ["self", "worker_group", "backend_config"]
    assert isinstance(config.TorchConfig.backend_cls, property)


def test_lightgbms_network_parameters_are_one_variable_of_a_module() -> None:
    pytest.importorskip("lightgbm")
    from ray.train.lightgbm import config

    assert config._lightgbm_network_params is None
    assert "_lightgbm_network_params is None" in source(config._set_network_params)
    assert parameters(config._LightGBMBackend.on_training_start) == ["self", "worker_group", "backend_config"]
    assert isinstance(config.LightGBMConfig.backend_cls, property)


def test_accelerate_forgets_what_it_keeps_for_a_process() -> None:
    state = pytest.importorskip("accelerate.state")

    assert parameters(state.AcceleratorState._reset_state) == ["reset_partial_state"]
    assert parameters(state.GradientState._reset_state) == []


def test_in_a_worker_one_function_finds_the_context_of_its_run() -> None:
    from ray.train.v2._internal.execution.context import TrainContext, get_train_context

    assert parameters(get_train_context) == []
    assert {"get_world_rank", "get_world_size"} <= set(dir(TrainContext))
    assert {"storage_context", "execution_context"} <= set(TrainContext.__annotations__)


def test_a_worker_changes_to_its_trials_directory_unless_a_variable_says_not_to() -> None:
    from ray._private.ray_constants import env_bool
    from ray.train.constants import RAY_CHDIR_TO_TRIAL_DIR

    assert parameters(env_bool) == ["key", "default"]
    assert env_bool(f"not-{RAY_CHDIR_TO_TRIAL_DIR}", True) is True


def test_the_callbacks_that_are_left_out_are_classes_of_rays() -> None:
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.callbacks.metrics import ControllerMetricsCallback, WorkerMetricsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

    from trainer.ray_train.trainer_classes import OMITTED_CALLBACKS

    expected = {DatasetsCallback, ControllerMetricsCallback, WorkerMetricsCallback, PlacementGroupCleanerCallback}
    assert expected < set(OMITTED_CALLBACKS)


def test_a_worker_group_is_created_by_its_constructor_and_one_call() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    created = source(WorkerGroup.create)
    assert "cls(train_run_context, worker_group_context, callbacks)" in created
    assert "worker_group._start()" in created
    assert parameters(WorkerGroup._start) == ["self"]


def test_the_clusters_state_is_known_without_a_dashboard() -> None:
    from ray._private.state import GlobalState, available_resources_per_node, state

    assert isinstance(state, GlobalState)
    assert callable(available_resources_per_node)
    assert "if the timestamp is 0" in (GlobalState.get_draining_nodes.__doc__ or "")
    assert callable(state._connect_and_get_accessor)


def test_a_placement_groups_record_names_its_creator_and_namespace() -> None:
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData

    fields = {field.name for field in PlacementGroupTableData.DESCRIPTOR.fields}
    assert {"placement_group_id", "ray_namespace", "state", "creator_actor_dead", "creator_actor_id"} <= fields
    assert PlacementGroupTableData.REMOVED >= 0


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


def test_a_worker_groups_actors_get_the_runtime_environment_that_one_method_returns() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert WorkerGroup._get_worker_runtime_env({}) == {"env_vars": {}}
    assert "self._get_worker_runtime_env(" in source(WorkerGroup._create_workers)


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
    assert not any("environ" in inspect.getsource(module) for module in (maps, reduces))


def test_a_split_starts_its_coordinator_by_a_name_of_its_module_with_the_dataset_first() -> None:
    from ray.data._internal.iterator import stream_split_iterator

    create = source(stream_split_iterator.StreamSplitDataIterator.create)
    assert re.search(r"SplitCoordinator\.options\(.*?\)\.remote\(base_dataset, n, locality_hints\)", create, re.DOTALL)


def test_the_iterator_of_a_split_adds_up_for_how_long_its_reader_is_blocked() -> None:
    from ray.data._internal.block_batching.iter_batches import BatchIterator
    from ray.data._internal.iterator.stream_split_iterator import StreamSplitDataIterator
    from ray.data._internal.stats import DatasetStats

    from trainer.ray_train.dataset_server_callback import blocked_seconds

    iterator = StreamSplitDataIterator(None, 0, 1)
    assert isinstance(iterator._iter_stats, DatasetStats)
    assert "return gen_blocks(), self._iter_stats, None" in source(StreamSplitDataIterator._to_ref_bundle_iterator)
    assert "self._stats.iter_total_blocked_s.timer()" in source(BatchIterator.get_next_batch_context)
    assert blocked_seconds(iterator) == 0
    iterator._iter_stats.iter_initialize_s.add(1.0)
    iterator._iter_stats.iter_total_blocked_s.add(0.5)
    assert blocked_seconds(iterator) == 1.5


def test_a_worker_group_takes_the_shard_provider_from_a_callback_and_tells_it_of_its_end() -> None:
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert issubclass(DatasetsCallback, WorkerGroupCallback)
    assert '{"dataset_shard_provider": [' in source(DatasetsCallback.before_init_train_context)
    assert "callback.after_worker_group_shutdown(" in source(WorkerGroup.shutdown)
    assert "callback.after_worker_group_abort(" in source(WorkerGroup.abort)


def test_in_a_worker_the_shards_come_from_the_provider_of_the_context() -> None:
    from ray.train.v2._internal.execution.context import TrainContext
    from ray.train.v2._internal.execution.train_fn_utils import DistributedTrainFnUtils

    assert "dataset_shard_provider" in {field.name for field in dataclasses.fields(TrainContext)}
    assert parameters(DistributedTrainFnUtils.get_dataset_shard) == ["self", "dataset_info"]
