"""The user's package in a worker: unpacked, imported, and asked for its training function."""

import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from trainer.worker.user_code.user_code import (
    BadEntrypoint,
    call,
    find_function,
    refusing_exit,
    refusing_shutdown,
    unpack,
)


@pytest.fixture(autouse=True)
def path_as_before() -> object:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def a_zip(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return content.getvalue()


def test_a_function_is_found_in_a_module_of_a_package_in_a_zip(tmp_path: Path) -> None:
    content = a_zip(
        deep____init__="", deep__er="from deep import other\ndef go(config): other.seen = config", deep__other=""
    )
    folder = unpack(content, "package.zip", tmp_path / "code")
    call(find_function("deep.er:go", folder), {"lr": 1})
    assert sys.modules["deep.other"].seen == {"lr": 1}


def test_a_missing_module_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    folder = unpack(b"x = 1", "train.py", tmp_path / "code")
    with pytest.raises(BadEntrypoint, match=r"no module 'main_of_mine'; it has: train$"):
        find_function("main_of_mine:go", folder)


def test_a_missing_library_is_not_reported_as_a_missing_module(tmp_path: Path) -> None:
    folder = unpack(b"import not_installed_here", "needs_it.py", tmp_path / "code")
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        find_function("needs_it:go", folder)


def test_a_function_of_two_arguments_is_refused_with_an_explanation() -> None:
    with pytest.raises(BadEntrypoint, match="takes one, the configuration, or none"):
        call(divmod, {})


def test_an_instance_that_takes_two_arguments_is_refused_with_an_explanation() -> None:
    class Training:
        def __call__(self, config: object, epochs: object) -> None: ...

    with pytest.raises(
        BadEntrypoint, match=r"^Training\(config, epochs\) takes 2 arguments; a training function takes"
    ):
        call(Training(), {})


def with_optional(config: object = None) -> object:
    return config


def with_two_optional(config: object = None, verbose: bool = False) -> object:
    return config, verbose


def with_other_arguments(*args: object, verbose: bool = False) -> object:
    return args, verbose


def decorated(function: Callable[..., object]) -> Callable[..., object]:
    """As by a decorator without `functools.wraps`."""

    def wrapper(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return wrapper


def test_a_decorated_function_gets_an_empty_configuration_too() -> None:
    assert call(decorated(lambda config: config), {}) == {}


def test_a_function_of_keyword_arguments_alone_is_refused_if_there_is_a_configuration() -> None:
    def train(**config: object) -> object:
        return config

    with pytest.raises(BadEntrypoint, match="train takes keyword arguments alone"):
        call(train, {"lr": 1})
    assert call(train, {}) == {}


def test_a_function_that_would_cut_its_worker_off_from_ray_is_told_so() -> None:
    shutdown = ray.shutdown
    with pytest.raises(RuntimeError, match=r"must not call ray\.shutdown\(\)"), refusing_shutdown():
        ray.shutdown()
    assert ray.shutdown is shutdown


def test_a_function_that_would_end_its_process_is_told_so() -> None:
    exit_ = os._exit
    with pytest.raises(RuntimeError, match=r"os\._exit\(3\) was called"), refusing_exit():
        os._exit(3)
    assert os._exit is exit_


@pytest.mark.parametrize(
    ("function", "returned"),
    [
        (with_optional, {"lr": 1}),
        (with_two_optional, ({"lr": 1}, False)),
        (with_other_arguments, (({"lr": 1},), False)),
        (decorated(lambda config: config), {"lr": 1}),
        (lambda: "nothing", "nothing"),
    ],
)
def test_an_argument_with_a_default_value_gets_the_configuration(
    function: Callable[..., object], returned: object
) -> None:
    assert call(function, {"lr": 1}) == returned


def test_without_a_configuration_the_default_value_stays() -> None:
    assert call(with_optional, {}) is None


async def trains_later(config: object) -> None: ...


def trains_in_parts(config: object) -> Iterator[int]:
    yield 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("function", "message"),
    [(trains_later, "trains_later is an async function"), (trains_in_parts, "trains_in_parts is a generator")],
)
def test_a_function_that_would_not_run_when_it_is_called_is_refused(
    function: Callable[..., object], message: str
) -> None:
    with pytest.raises(BadEntrypoint, match=f"^{message}"):
        call(function, {})


@pytest.mark.parametrize("name", ["ray", "torch", "logging"])
def test_an_entrypoint_whose_module_the_worker_cannot_replace_is_refused(name: str, tmp_path: Path) -> None:
    folder = unpack(b"def train(config): pass", f"{name}.py", tmp_path / "code")
    with pytest.raises(BadEntrypoint, match=f"rename the entrypoint's module '{name}'"):
        find_function(f"{name}:train", folder)
