"""How the processes that make datasets fail, and in whose log."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RpcError

from tests.trainer.conftest import set_constant
from trainer.worker.datasets.dataset_server import DataPlan, DatasetMaker, DatasetStore
from trainer.worker.failures import LOST, USER_ERROR, DatasetNotMade
from trainer.worker.user_process import UserProcess

pytestmark = pytest.mark.ray  # Ray's filters of warnings: importing it


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> DatasetStore:
    """It runs in this process, and does not end."""
    for method, name in (
        (DatasetStore.__init__, "detach_children_from_ray"),
        (DatasetStore.__init__, "plan_here"),
        (DatasetStore.join, "this_process"),
    ):
        set_constant(monkeypatch, method, name, lambda *_, **__: UserProcess("", [], None))
    monkeypatch.setattr(DatasetStore, "_end_with_slots", lambda _: None)
    return DatasetStore(DataPlan({"preprocess_on": {"resources": {}}}, 0))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RpcError("the head is away"), LOST),
        (RuntimeError("WrongClusterID"), LOST),
        (ValueError("bad column"), USER_ERROR),
    ],
)
def test_an_error_of_the_connection_to_ray_is_not_the_users(error: Exception, kind: str) -> None:
    def make() -> dict[str, Any]:
        raise error

    with pytest.raises(DatasetNotMade, match="the datasets could not be made: ") as raised:
        DatasetMaker(keeps_failure=True).datasets(make)
    assert raised.value.failure.kind == kind


def test_the_store_stays_for_each_of_two_slots_that_join_at_the_same_time(store: DatasetStore) -> None:
    """The second joins while the first one's call of its slot is made."""

    def job(slot: str, meanwhile: Callable[[], object]) -> Any:
        until_closed = SimpleNamespace(remote=lambda: (meanwhile(), f"{slot} is closed")[1])
        return SimpleNamespace(run_by=slot, slot=SimpleNamespace(until_closed=until_closed))

    second = job("second", lambda: None)
    store.join(job("first", lambda: store.join(second, {})), {})
    assert set(store._slots.values()) == {"first is closed", "second is closed"}


def test_the_store_prints_to_the_run_that_asked_and_not_to_the_last_that_joined(
    store: DatasetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as to the second one if both have joined before the first one asks, and the function fails each time."""
    runs: list[str] = []

    def fail(job: Any, *_: Any, **__: Any) -> dict[str, Any]:
        runs.append(job.run)
        raise ValueError("no such bucket")

    def job(run: str) -> Any:
        slot = SimpleNamespace(until_closed=SimpleNamespace(remote=lambda: None))
        return SimpleNamespace(run=run, run_by="slot", slot=slot, unpack=lambda: None)

    set_constant(monkeypatch, DatasetStore._materialize, "make_datasets", fail)
    first, second = job("first"), job("second")
    for one in (first, second):
        store.join(one, {})
    for one in (first, second, first):
        assert store.datasets(one, {})[1] is not None
    assert runs == ["first", "second", "first"]
