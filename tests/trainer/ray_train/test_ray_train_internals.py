"""What `trainer/ray_train` assumes about Ray Train's controller, worker groups and backends, one by one.

When Ray is upgraded and one of these fails, its name says which assumption no longer holds. `reuse_workers: false`
needs those in `test_ray_worker_internals.py`, and those of the cluster's state in `test_ray_core_internals.py`.
`tests/architecture/test_ray_internals.py` checks that every internal that is used is named in one of the three.
"""

# ruff: noqa: PLC0415 - Ray is imported when such a test runs, not when tests are collected

import dataclasses
import inspect
import re

import pytest

from tests.trainer.ray_train.signatures import parameters, source

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes seconds


def test_the_controller_creates_its_worker_group_through_a_replaceable_class_attribute() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert hasattr(TrainController, "worker_group_cls")
    call = re.search(r"self\.worker_group_cls\.create\((.*?)\)\n", source(TrainController), re.DOTALL)
    assert call is not None
    assert re.findall(r"(\w+)=", call.group(1)) == ["train_run_context", "worker_group_context", "callbacks"]


def test_the_controller_polls_in_one_coroutine_after_a_pause_counted_from_the_last_poll() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert inspect.iscoroutinefunction(TrainController._poll_workers)
    assert "time_monotonic() - self._latest_poll_time" in source(TrainController._poll_workers)


def test_the_controller_reads_whether_to_watch_for_preemption_only_in_its_constructor() -> None:
    from ray.train.v2._internal.execution.controller import TrainController

    assert "ENABLE_PREEMPTION_WATCHER_ENV_VAR" in source(TrainController.__init__)


def test_a_worker_is_told_of_a_preemption_by_one_call_and_only_the_failure_policy_repeats_the_run() -> None:
    from ray.train import PreemptionInfo
    from ray.train.v2._internal.execution.controller import TrainController
    from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy
    from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
    from ray.train.v2.api.exceptions import PreemptionError

    from trainer.ray_train.runners import RunPlan

    assert parameters(RayTrainWorker.mark_preempt) == ["self", "info"]
    assert parameters(PreemptionInfo) == ["deadline_ms", "preempted_node_to_ranks"]
    error = PreemptionError(preemption_info=PreemptionInfo(0, {}), drain_timed_out=True)
    scaling = {"num_workers": 1}
    plan = RunPlan("torch", scaling, {}, "run", "/storage", is_cancelled=lambda: False, on_success=lambda: None)
    decision = DefaultFailurePolicy(plan.run_config().failure_config).make_decision(training_failed_error=error)
    assert decision.name == "RAISE"
    assert "self._failure_policy.make_decision" in source(TrainController._handle_preempting_state)


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

    from trainer.ray_train.trainer_subclasses import OMITTED_CALLBACKS

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


def test_ranks_wait_for_each_other_in_one_method_of_the_synchronization_actor() -> None:
    from ray.train.v2._internal.execution.checkpoint import sync_actor
    from ray.train.v2._internal.execution.worker_group import worker_group

    from trainer.ray_train.synchronization import RaysOwn

    assert worker_group.SynchronizationActor is sync_actor.SynchronizationActor
    assert inspect.iscoroutinefunction(RaysOwn.broadcast_from_rank_zero)


def test_a_worker_group_creates_its_workers_from_a_replaceable_class_attribute() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import RayTrainWorker, WorkerGroup

    assert WorkerGroup._worker_cls is RayTrainWorker
    assert "(self._worker_cls)" in source(WorkerGroup._create_workers)


def test_a_worker_group_creates_its_workers_by_the_module_ray_and_returns_when_they_have_answered() -> None:
    import ray
    from ray.train.v2._internal.execution.worker_group import worker_group

    assert worker_group.ray is ray
    created = source(worker_group.WorkerGroup._create_workers)
    assert "worker_actor_cls = ray.remote(" in created
    assert created.index("worker_actor_cls.options(") < created.index("ray.get([actor.get_metadata.remote()")


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


def test_torchs_backend_is_chosen_by_the_trainer_and_set_up_on_start() -> None:
    from ray.train.torch import config

    assert parameters(config._TorchBackend.on_start) == ["self", "worker_group", "backend_config"]
    assert isinstance(config.TorchConfig.backend_cls, property)


def test_the_callbacks_that_are_left_out_are_classes_of_rays() -> None:
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.callbacks.metrics import ControllerMetricsCallback, WorkerMetricsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

    from trainer.ray_train.trainer_subclasses import OMITTED_CALLBACKS

    expected = {DatasetsCallback, ControllerMetricsCallback, WorkerMetricsCallback, PlacementGroupCleanerCallback}
    assert expected < set(OMITTED_CALLBACKS)


def test_a_worker_group_is_created_by_its_constructor_and_one_call() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    created = source(WorkerGroup.create)
    assert "cls(train_run_context, worker_group_context, callbacks)" in created
    assert "worker_group._start()" in created
    assert parameters(WorkerGroup._start) == ["self"]


def test_a_worker_groups_actors_get_the_runtime_environment_that_one_method_returns() -> None:
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert WorkerGroup._get_worker_runtime_env({}) == {"env_vars": {}}
    assert "self._get_worker_runtime_env(" in source(WorkerGroup._create_workers)


def test_a_worker_group_takes_the_shard_provider_from_a_callback_and_tells_it_of_its_end() -> None:
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback
    from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

    assert issubclass(DatasetsCallback, WorkerGroupCallback)
    assert '{"dataset_shard_provider": [' in source(DatasetsCallback.before_init_train_context)
    assert "callback.after_worker_group_shutdown(" in source(WorkerGroup.shutdown)
    assert "callback.after_worker_group_abort(" in source(WorkerGroup.abort)
