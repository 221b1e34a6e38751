"""A slot on its own, without an agent."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainer.conftest import Add, pid_of, slot_of, until
from tests.trainer.fake_service import PATIENCE_SECONDS, FakeService
from tests.trainer.slot.conftest import SCALING, ended, started
from trainer.resources import WorkerGroup
from trainer.slot.nodes import node_tasks
from trainer.wire import Decision, FailureKind, Outcome
from trainer.worker.messages import WorkerEnded

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SLOT_FAILED = "the process that ran it for the agent (its slot) failed:"


def running(runner: Any, trial: str, service: FakeService) -> Any:
    """A slot that runs the trial by these `runs`, a stand-in for Ray Train's."""
    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    class SlotByThese(Slot):
        def _make_runner(self, trainer: Any) -> Any:  # noqa: ARG002
            made = runner()
            made.slot, made.wake = self, lambda: None
            return made

    return started(SlotByThese, trial, service)


def test_a_slot_that_fails_reports_its_trial_as_lost_and_ends(alone: FakeService) -> None:
    class Broken:
        placement_group = None

        def fit(self, *_arguments: Any) -> None:
            raise MemoryError("no room left")

        def end_workers(self) -> None:
            pass

        def close(self) -> None:
            pass

    trial = alone.add_trial({"entrypoint": "train:train_fn", "scaling": SCALING})
    actor = running(Broken, trial, alone)
    error = alone.finished(trial).error
    assert error is not None
    assert (error.kind, error.message) == (FailureKind.LOST, f"{SLOT_FAILED} MemoryError: no room left")
    assert ended(actor)


def taken_down_once(may_be: Callable[[], bool]) -> Any:
    """Runs that succeed immediately, which Ray then takes long to shut down."""

    class Slow:
        placement_group = None
        slot: Any

        def fit(self, _train: Any, plan: Any) -> None:
            self.slot._attempt.ranks.add_ended(0, WorkerEnded())
            plan.on_success()
            while not may_be():
                threading.Event().wait(0.05)

        def end_workers(self) -> None:
            pass

    return Slow


def test_a_slot_without_work_closes_itself_when_no_agent_asks_for_its_status(alone: FakeService) -> None:
    import ray  # noqa: PLC0415 - heavy

    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    class SoonOrphaned(Slot):
        orphan_seconds = 1.0

    actor = ray.remote(SoonOrphaned).options(num_cpus=0, max_concurrency=10).remote(alone.url, "slot")
    process = pid_of(actor)
    until(lambda: not psutil.pid_exists(process), "the slot to close itself")
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(actor.status.remote())


@pytest.mark.parametrize("has_package", [True, False], ids=["package", "code"])
def test_a_slot_without_room_for_what_its_workers_need_tells_its_agent_and_then_ends(
    alone: FakeService, has_package: bool
) -> None:
    """Its constructor stores nothing: a slot that dies there could not name the node."""
    import ray  # noqa: PLC0415 - heavy

    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    class OnFullNode(Slot):
        def __init__(self, *arguments: Any) -> None:
            ray.put = self.refuse
            super().__init__(*arguments)

        def refuse(self, _: Any) -> None:
            raise ray.exceptions.OutOfDiskError("Local disk is full")

    package = {"package": alone.add_package("x = 1")} if has_package else {}
    trial = alone.add_trial({"entrypoint": "json:loads", "scaling": SCALING, **package})
    actor = started(OnFullNode, trial, alone)
    error = alone.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.PREEMPTED
    until(lambda: ray.get(actor.status.remote())["failed_disks"], "the slot to name the node")
    assert ended(actor)


def test_a_success_is_reported_while_ray_still_shuts_the_run_down(alone: FakeService, tmp_path: Path) -> None:
    import ray  # noqa: PLC0415 - heavy

    taken_down = tmp_path / "taken down"
    first, following = (alone.add_trial({"entrypoint": "json:loads", "scaling": SCALING}) for _ in range(2))
    actor = running(taken_down_once(taken_down.exists), first, alone)
    assert alone.finished(first).next
    assert following not in alone.finishes
    taken_down.touch()
    alone.finished(following)
    ray.kill(actor)


def test_a_slot_accepts_an_assignment_while_ray_still_shuts_a_run_down(alone: FakeService, tmp_path: Path) -> None:
    import ray  # noqa: PLC0415 - heavy

    taken_down = tmp_path / "taken down"

    def add_trial() -> str:
        return alone.add_trial({"entrypoint": "json:loads", "scaling": SCALING})

    first = add_trial()
    actor = running(taken_down_once(taken_down.exists), first, alone)
    alone.finished(first)
    assert not ray.get(actor.status.remote())["starting"], "the slot extends the lease of the first one itself"
    until(lambda: ray.get(actor.status.remote())["idle_seconds"] is not None, "the slot to have the service's answer")
    second = add_trial()
    assert ray.get(actor.run.remote(alone.assign(second), "key", SCALING))
    status = ray.get(actor.status.remote())
    assert (status["trial"], status["starting"]) == (second, True)
    assert second not in alone.finishes
    taken_down.touch()
    alone.finished(second)
    ray.kill(actor)


def test_a_slot_whose_ray_head_was_restarted_gives_its_trial_back_once_and_ends(alone: FakeService) -> None:
    import ray  # noqa: PLC0415 - heavy
    from ray.exceptions import AuthenticationError  # noqa: PLC0415 - heavy

    class Refused:
        """No call to the head succeeds; nor would `ray.kill`, by which the slot might end itself."""

        placement_group = None

        def fit(self, *_arguments: Any) -> BaseException:
            refusal: BaseException = AuthenticationError("RPC error: WrongClusterID: Perhaps the client ...")
            return refusal

        def end_workers(self) -> None:
            ray.kill = lambda _actor: None

        def close(self) -> None:
            raise AuthenticationError("RPC error: WrongClusterID")

    first, following = (alone.add_trial({"entrypoint": "json:loads", "scaling": SCALING}) for _ in range(2))
    actor = running(Refused, first, alone)
    finish = alone.finished(first)
    assert finish.error is not None
    assert (finish.error.kind, finish.error.began, finish.next) == (FailureKind.LOST, False, False)
    assert "the Ray head was restarted" in finish.error.message
    assert ended(actor)
    assert [one.trial for one in alone.queue] == [following]


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_cancel_ends_the_wait_for_the_worker_groups_resources(alone: FakeService, reuse_workers: bool) -> None:
    import ray  # noqa: PLC0415 - heavy
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - heavy

    from trainer.ray_train.runners import FreshRunner, WarmRunner  # noqa: PLC0415 - heavy
    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    start_seconds = 10 * PATIENCE_SECONDS

    class Patient(Slot):
        """Only a cancel ends its wait before the test loses its patience."""

        def _make_runner(self, trainer: Any) -> Any:
            if trainer.reuse_workers:
                return WarmRunner(self._checkpoint_saved, start_seconds)
            return FreshRunner(self._handle, start_seconds)

    def waiting() -> list[str]:
        return [id_ for id_, one in placement_group_table().items() if one["state"] == "PENDING" and id_ not in earlier]

    earlier = set(placement_group_table())
    scaling = {"num_workers": 1, "resources_per_worker": {"not-to-be-had": 1}}
    trial = alone.add_trial({"entrypoint": "json:loads", "scaling": scaling, "reuse_workers": reuse_workers})
    actor = started(Patient, trial, alone)
    until(waiting, "a placement group without room")
    alone.order(trial, Decision.KILL)
    assert alone.finished(trial).outcome == Outcome.STOPPED
    until(lambda: not waiting(), "the placement group is removed")
    ray.kill(actor)


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_slot_that_waited_for_resources_in_vain_asks_for_no_next_trial_and_reserves_nothing(
    alone: FakeService, reserved: Callable[[], set[str]], reuse_workers: bool
) -> None:
    import ray  # noqa: PLC0415 - heavy

    from trainer.ray_train.runners import FreshRunner, WarmRunner  # noqa: PLC0415 - heavy
    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    class Impatient(Slot):
        def _make_runner(self, trainer: Any) -> Any:
            if trainer.reuse_workers:
                return WarmRunner(self._checkpoint_saved, 0)
            return FreshRunner(self._handle, 0)

    scaling = {"num_workers": 2, "resources_per_worker": {"not-to-be-had": 1}}
    trainer = {"entrypoint": "json:loads", "scaling": scaling, "reuse_workers": reuse_workers}
    trial, _next = (alone.add_trial(trainer) for _ in range(2))
    actor = started(Impatient, trial, alone)
    finished = alone.finished(trial)
    assert finished.error is not None
    assert finished.error.is_start_given_back, finished.error
    assert not finished.next
    assert not reserved()
    ray.kill(actor)


def test_the_worker_groups_that_wait_for_resources_are_known(alone: FakeService) -> None:
    import ray  # noqa: PLC0415 - heavy
    from ray.util.placement_group import placement_group, remove_placement_group  # noqa: PLC0415 - heavy

    from trainer.ray_train.cluster_state import pending_groups  # noqa: PLC0415 - heavy

    selectors = [{"zone": "a"}, {"zone": "!in(b,c)"}]
    created = placement_group([{"CPU": 0.5}])
    ray.get(created.ready())
    waits = placement_group([{"not-to-be-had": 1}] * 2, "STRICT_SPREAD", bundle_label_selector=selectors)
    [found] = pending_groups(created)
    assert found == WorkerGroup.of(
        {
            "num_workers": 2,
            "resources_per_worker": {"not-to-be-had": 1},
            "placement_strategy": "STRICT_SPREAD",
            "label_selector": selectors,
        }
    )
    assert pending_groups(waits) == []
    for group in (created, waits):
        remove_placement_group(group)


HANGS = """
import pathlib, sys, time

class Hangs:
    def find_spec(self, name, path=None, target=None):
        if name == "ray.train":
            pathlib.Path(__file__).with_name("hangs").touch()
            time.sleep(1e6)

sys.meta_path.insert(0, Hangs())
"""


def a_hanging_trial(alone: FakeService, folder: Path, **trainer: Any) -> str:
    """The processes of its workers start, and then never answer the call that makes them workers."""
    (folder / "sitecustomize.py").write_text(HANGS)
    env = {"PYTHONPATH": str(folder)}
    return alone.add_trial({"entrypoint": "json:loads", "scaling": SCALING, "env": env, **trainer})


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_workers_that_never_answer_are_given_up_and_the_slot_ends(
    alone: FakeService, reserved: Callable[[], set[str]], tmp_path: Path, reuse_workers: bool
) -> None:
    from trainer.ray_train.runners import START_SECONDS  # noqa: PLC0415 - heavy
    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    class Impatient(Slot):
        answer_seconds = 10.0 - START_SECONDS

    trial = a_hanging_trial(alone, tmp_path, reuse_workers=reuse_workers)
    actor = started(Impatient, trial, alone)
    error = alone.finished(trial).error
    assert error is not None
    assert error.kind == FailureKind.LOST
    assert error.message == "0 of 1 workers have started within 10 s; Ray's logs of their nodes may say why"
    assert ended(actor)
    until(lambda: not reserved(), "nothing is reserved")


@pytest.mark.parametrize("reuse_workers", [True, False])
def test_a_cancel_ends_workers_that_only_start(
    alone: FakeService, reserved: Callable[[], set[str]], tmp_path: Path, reuse_workers: bool
) -> None:
    import ray  # noqa: PLC0415 - heavy

    from trainer.slot.slot import Slot  # noqa: PLC0415 - heavy

    trial = a_hanging_trial(alone, tmp_path, reuse_workers=reuse_workers)
    actor = started(Slot, trial, alone)
    until((tmp_path / "hangs").exists, "a worker that starts")
    alone.order(trial, Decision.KILL)
    assert alone.finished(trial).outcome == Outcome.STOPPED
    until(lambda: not reserved(), "nothing is reserved")
    assert not ray.get(actor.status.remote())["closing"]
    ray.kill(actor)


def test_a_cancel_frees_the_placement_group_whose_processes_may_live_on(
    alone: FakeService, reserved: Callable[[], set[str]], start: Callable[[str], tuple[str, Any]], record: Path
) -> None:
    """Ray's kill of a worker can be lost with the network between two nodes."""
    import ray  # noqa: PLC0415 - heavy

    trial, actor = start("ignore_everything")
    until(record.exists, "the start")
    assert reserved()
    alone.order(trial, Decision.KILL)
    assert alone.finished(trial).outcome == Outcome.STOPPED
    until(lambda: not reserved(), "nothing is reserved")
    assert not ray.get(actor.status.remote())["closing"]
    ray.kill(actor)


def test_a_slot_killed_while_its_fresh_processes_start_leaves_nothing(service: FakeService, add: Add) -> None:
    from ray._private.state import actors  # noqa: PLC0415 - heavy
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - heavy

    service.wait_for(lambda: service.claims, what="that the agent has joined the cluster")
    earlier = set(placement_group_table())

    def states() -> list[str]:
        """The states of the slot's groups: one to see whether there is room, and then Ray Train's own."""
        return sorted(group["state"] for id_, group in placement_group_table().items() if id_ not in earlier)

    trial = add(trainer={"reuse_workers": False}, config={"steps": 10_000, "pause": 0.1})
    until(lambda: states() == ["CREATED", "REMOVED"], "the worker group has its resources")
    os.kill(pid_of(slot_of(trial)), signal.SIGKILL)  # most often before its workers have said where they are
    service.wait_for(lambda: trial in service.lost, what="that the agent says so")
    until(lambda: states() == ["REMOVED", "REMOVED"], "its resources are free")
    living = {actor["ActorClassName"] for actor in actors().values() if actor["State"] == "ALIVE"}
    assert "PlacementGroupCleaner" not in living


def test_the_rest_of_a_log_is_read_from_its_position_and_a_long_rest_from_near_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_tasks, "MAX_REST_BYTES", 12)
    path = tmp_path / "worker.out"
    path.write_bytes(b"read already\nlast\0words\n")
    assert node_tasks.read_rest({str(path): len("read already\n")}) == "last?words\n"
    path.write_bytes(b"read already\n" + 1_000 * b"-" + b"last words\n")
    note = "[paceline: 999 bytes of output before this are left out]"
    assert node_tasks.read_rest({str(path): len("read already\n")}) == f"{note}\n-last words\n"
