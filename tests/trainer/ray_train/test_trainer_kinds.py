"""What holds for every kind of trainer. A new line in the registry is tested here without an edit."""

import contextlib
from importlib.util import find_spec

import pytest
from ray.train import ScalingConfig

from service.specification.cross_field_checks.trainer_checks import TORCH_KINDS
from trainer.ray_train.runners import RunPlan
from trainer.ray_train.trainer_kinds import BACKENDS, Backend
from trainer.wire import Kind, Trainer

# Ray's filters of warnings: the registry's module imports Ray.
pytestmark = pytest.mark.ray

KINDS = [kind for kind in Kind if kind is not Kind.EXTERNAL]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def _facts(backend: Backend) -> tuple[str, str, str, bool, str]:
    return backend.module, backend.trainer, backend.library, backend.is_warm, backend.options.__name__


def test_the_registry_has_every_kind_of_the_wire_but_the_external_one() -> None:
    assert set(BACKENDS) == {kind.value for kind in KINDS}


@each_kind
def test_the_wire_accepts_it_and_names_the_known_kinds_otherwise(kind: Kind) -> None:
    assert Trainer.model_validate({"kind": kind.value}).kind == kind
    with pytest.raises(ValueError, match=f"'{kind.value}'"):
        Trainer.model_validate({"kind": f"{kind.value}-2"})


def test_the_kinds_that_take_a_torch_config_are_those_of_rays_torch_trainer() -> None:
    of_torch = {kind for kind, backend in BACKENDS.items() if backend.trainer == "TorchTrainer"}
    assert of_torch == set(TORCH_KINDS), "correct TORCH_KINDS, by which the service checks trainer.torch_config"


@each_kind
def test_a_run_is_planned_by_its_line_of_the_registry(kind: Kind) -> None:
    plan = RunPlan(kind.value, {"num_workers": 1}, {}, "run", "/storage", lambda: False, lambda: None)
    # Not by identity: a process that has unpickled our classes by value may hold a copy of the registry.
    assert _facts(plan.backend) == _facts(BACKENDS[kind.value])


@pytest.mark.slow  # importing Ray Train and the library takes seconds
@each_kind
def test_its_trainer_can_be_constructed_where_its_library_is_installed(kind: Kind) -> None:
    backend = BACKENDS[kind.value]
    if find_spec(backend.library) is None:
        pytest.skip(f"{backend.library} is not installed")
    scaling = ScalingConfig(num_workers=1)
    trainer = backend.trainer_class()(lambda: None, scaling_config=scaling, **backend.options({}))
    assert callable(trainer.fit)
    assert callable(trainer._create_default_callbacks)
    assert callable(trainer._initialize_and_run_controller)


@pytest.mark.slow
@each_kind
def test_without_its_library_it_fails_by_an_import_error_or_not_at_all(kind: Kind) -> None:
    backend = BACKENDS[kind.value]
    if find_spec(backend.library) is not None:
        pytest.skip(f"{backend.library} is installed")
    with contextlib.suppress(ImportError):  # or else the training function fails at its own import
        assert backend.trainer_class().__name__ == backend.trainer


@pytest.mark.slow
@each_kind
def test_a_torch_kind_says_whether_its_workers_see_the_gpus_of_their_node(kind: Kind) -> None:
    backend = BACKENDS[kind.value]
    if find_spec(backend.library) is None:
        pytest.skip(f"{backend.library} is not installed")
    config = backend.options({}).get("torch_config")
    assert (config is not None) == (backend.trainer == "TorchTrainer"), "Ray's default would leave the backend out"
    assert config is None or isinstance(config.backend_cls.share_cuda_visible_devices, bool)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sees_all"), [(Kind.TORCH, False), (Kind.LIGHTNING, True), (Kind.TRANSFORMERS, True)])
def test_libraries_that_choose_the_device_by_local_rank_see_all_gpus(kind: Kind, sees_all: bool) -> None:
    backend_class = BACKENDS[kind.value].options({})["torch_config"].backend_cls
    assert backend_class.share_cuda_visible_devices is sees_all


@pytest.mark.slow
def test_the_ranks_of_a_command_see_all_gpus_as_with_torchrun() -> None:
    assert BACKENDS[Kind.COMMAND].options({})["backend_config"].backend_cls.share_cuda_visible_devices


@pytest.mark.parametrize("kind", [Kind.JAX, Kind.TENSORFLOW], ids=str)
def test_a_library_that_cannot_be_set_up_again_in_its_process_is_not_warm(kind: Kind) -> None:
    assert not BACKENDS[kind.value].is_warm
