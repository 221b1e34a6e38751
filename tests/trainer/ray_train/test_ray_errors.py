"""The errors and source files that are recognized by name are Ray's own names for them."""

# ruff: noqa: PLC0415 - Ray is imported when such a test runs, not when tests are collected

import inspect

import pytest

from trainer.ray_train.ray_errors import (
    DEATHS,
    NO_STATE,
    NOT_SET_UP,
    NOT_STARTED,
    PREEMPTION,
    RAY_FAILURES,
    STORAGE_FILES,
    STORAGE_STATE,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray takes seconds

OWN = "ResourcesTimeout"
RAYS = RAY_FAILURES | DEATHS | NOT_STARTED - {OWN} | {NOT_SET_UP, NO_STATE, PREEMPTION}


@pytest.mark.parametrize("name", sorted(RAYS))
def test_each_error_that_is_recognized_by_name_is_one_of_rays(name: str) -> None:
    import ray.exceptions
    from ray.train.v2._internal import exceptions as internal_exceptions
    from ray.train.v2.api import exceptions as train_exceptions

    modules = [ray.exceptions, internal_exceptions, train_exceptions]
    found = [vars(module)[name] for module in modules if name in vars(module)]
    assert [issubclass(error, Exception) and error.__name__ == name for error in found] == [True]


def test_a_worker_group_that_gets_no_resources_is_recognized_by_the_name_of_pacelines_error() -> None:
    from trainer.ray_train.elastic_policy import ResourcesTimeout

    assert ResourcesTimeout.__name__ == OWN
    assert OWN in NOT_STARTED


def test_ray_train_uses_the_storage_in_the_source_files_that_are_recognized() -> None:
    from ray.train.v2._internal.execution.checkpoint import checkpoint_manager
    from ray.train.v2._internal.execution.storage import StorageContext

    manager = inspect.getfile(checkpoint_manager)
    assert STORAGE_FILES.search(inspect.getfile(StorageContext))
    assert STORAGE_FILES.search(manager)
    assert STORAGE_STATE.search(manager)
    assert "json.loads(" in inspect.getsource(checkpoint_manager)
