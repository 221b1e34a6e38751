"""What `trainer/ray_train` assumes about Ray Train in a worker: the context of a run, reports and saved checkpoints."""

# ruff: noqa: PLC0415 - Ray is imported when such a test runs, not when tests are collected

import dataclasses
import re
from pathlib import Path

import pytest

from tests.trainer.ray_train.signatures import parameters, source

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes seconds


def test_a_save_is_refused_in_known_words_where_the_folder_of_the_run_is_missing() -> None:
    from ray.train.v2._internal.execution.storage import StorageContext

    from trainer.ray_train.train_session import NO_STORAGE

    assert "self._check_validation_file()" in source(StorageContext.persist_current_checkpoint)
    assert f'raise RuntimeError(\n                f"{NO_STORAGE} with' in source(StorageContext._check_validation_file)


def test_a_checkpoint_is_saved_by_a_function_that_can_be_replaced() -> None:
    from ray.train.v2._internal.execution import storage

    from trainer.ray_train.checkpoints.file_copy import save_files

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
    assert "return _train_fn_utils" in source(train_fn_utils.get_train_fn_utils)
    assert "self.report_call_index += 1" in source(TrainContext.report)
    assert "self.current_report_index == report_call_index - 1" in source(TrainContext._wait_then_report)
    assert "self.checkpoint = training_report.checkpoint" in source(TrainContext._wait_then_report)


def test_what_fails_in_the_background_goes_to_a_queue_that_can_be_replaced_for_each_run() -> None:
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
    from ray.train.v2._internal.execution.context import TrainContext
    from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner
    from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker

    put = "training_thread_runner.get_exception_queue().put(\n"
    reporting = source(TrainContext.report)
    assert reporting.count(put) == reporting.count(f"{put}{28 * ' '}construct_user_exception_with_traceback(e)") == 2
    assert "get_exception_queue" not in source(ThreadRunner.run)
    assert "training_thread_runner=ThreadRunner()" in source(RayTrainWorker.init_train_context)
    error = ValueError("a")
    wrapped = UserExceptionWithTraceback(error, "where")
    assert (wrapped._base_exc, str(wrapped)) == (error, "where")


def test_in_a_worker_print_can_be_restored() -> None:
    from ray.train.v2._internal.logging import patch_print

    assert callable(patch_print._original_print)


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


def test_in_a_worker_the_shards_come_from_the_provider_of_the_context() -> None:
    from ray.train.v2._internal.execution.context import TrainContext
    from ray.train.v2._internal.execution.train_fn_utils import DistributedTrainFnUtils

    assert "dataset_shard_provider" in {field.name for field in dataclasses.fields(TrainContext)}
    assert parameters(DistributedTrainFnUtils.get_dataset_shard) == ["self", "dataset_info"]
