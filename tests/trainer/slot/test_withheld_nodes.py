"""A slot does not use a node whose disk is full for its next attempts. Starts no Ray."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import OutOfDiskError

from tests.trainer.fake_service import FakeService
from tests.trainer.slot.attempt.played_attempt import STARTED, CountingRunner
from trainer.client.addresses import ServiceAddresses
from trainer.process_log.setup import LogSettings
from trainer.slot.assignment import Assignment
from trainer.slot.attempt_executor import AttemptExecutor, SlotAvailability
from trainer.slot.attempt_planner import AttemptPlanner
from trainer.slot.checkpoints.checkpoint_removal import CheckpointRemover
from trainer.slot.nodes.slot_nodes import SlotNodes
from trainer.slot.nodes.withheld_nodes import WITHHELD_SECONDS, WithheldNodes
from trainer.slot.user_package import UserPackage
from trainer.wire import Finish
from trainer.worker.failures import LOST, PREEMPTED, Failure
from trainer.worker.messages import WorkerEnded
from trainer.worker.rank_session import run_job

pytestmark = pytest.mark.ray  # Ray's filters of warnings: the slot's modules import Ray

FULL = Failure(LOST, "the package cannot be unpacked: no room", is_of_node_disk=True, is_at_start=True)
GOOD = WorkerEnded()
STORED_NOTHING = "cannot be stored: the disk of the node's object store is full; "
NO_ROOM = f"the package {STORED_NOTHING}"


class PlayedRunner(CountingRunner):
    """Its ranks, each on a node, end as the test says. Remembers the plans."""

    def __init__(self, nodes: SlotNodes) -> None:
        super().__init__()
        self.nodes, self.ends = nodes, dict[str, WorkerEnded]()
        self.plans: list[Any] = []
        self.closed_count = 0
        self.attempt: Callable[[], Any] = lambda: None
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()

    def fit(self, _train: Any, plan: Any) -> BaseException | None:
        self.plans.append(plan)
        self.placement_group: Any = "group"
        asyncio.run_coroutine_threadsafe(self._play(), self.loop).result()
        failed = any(end.failure for end in self.ends.values())
        return RuntimeError("Ray says so") if failed else plan.on_success()

    async def _play(self) -> None:
        attempt = self.attempt()
        for rank, node in enumerate(self.ends):
            self.nodes.add_worker(node, f"group-{len(self.plans)}")
            attempt.worker_started(rank, replace(STARTED, node=node))
        for rank, end in enumerate(self.ends.values()):
            attempt.ranks.add_ended(rank, end)

    def close(self) -> None:
        self.closed_count += 1
        self.placement_group = None

    @property
    def selectors(self) -> list[Any]:
        return [plan.scaling.get("label_selector") for plan in self.plans]


class PlayedSlot:
    """A slot whose workers the test plays, and the service that it works for."""

    def __init__(self, service: FakeService) -> None:
        self.service, self.nodes = service, SlotNodes("own")
        self.runner: Any = PlayedRunner(self.nodes)
        planner = AttemptPlanner(
            "slot", None, ServiceAddresses(service.url), UserPackage("slot"), LogSettings.from_env({}), {}
        )
        self.availability = SlotAvailability()
        self.executor = AttemptExecutor(
            planner, self.nodes, self.availability, CheckpointRemover(), lambda _: self.runner, lambda: None, 300.0
        )
        self.runner.attempt = lambda: self.executor.attempt

    async def run(self, **ends: WorkerEnded) -> Finish:
        """Run a trial whose ranks, on the nodes with these names, end so."""
        self.runner.ends = ends
        return await self.execute({"scaling": {"num_workers": len(ends)}})

    async def execute(self, trainer: dict[str, Any]) -> Finish:
        trial = self.service.add_trial({"entrypoint": "train:train_fn", **trainer})
        assignment = Assignment.from_json(self.service.assign(trial))
        self.executor.accept(assignment, "key", {})
        await asyncio.to_thread(self.executor.execute, assignment)
        return self.service.finishes[trial]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[PlayedSlot], Any]], None]:
    """Runs a test with a slot."""
    monkeypatch.setattr("ray.put", lambda value: value)

    def run(test: Callable[[PlayedSlot], Any]) -> None:
        async def with_slot(service: FakeService) -> None:
            await test(PlayedSlot(service))

        with FakeService(str(tmp_path)).serving() as service:
            asyncio.run(with_slot(service))

    return run


def test_a_trial_whose_package_finds_no_room_is_given_back_and_does_not_come_to_that_node_again(play: Any) -> None:
    async def test(slot: PlayedSlot) -> None:
        finish = await slot.run(full=WorkerEnded(failure=FULL), other=GOOD)
        assert finish.error is not None
        assert finish.error.kind == PREEMPTED, "it costs the trial nothing"
        assert finish.error.message == f"{FULL.message}; the trial starts again where there is room"
        assert not finish.next
        assert slot.nodes.failed_disks == {"full": (1, FULL.message)}
        finish = await slot.run(other=GOOD)
        assert (finish.outcome, finish.next) == ("completed", True)
        assert slot.runner.selectors == [None, {"ray.io/node-id": "!in(full)"}]
        assert slot.runner.closed_count == 1

    play(test)


def test_a_disk_that_fails_while_the_function_runs_costs_a_loss(play: Any) -> None:
    async def test(slot: PlayedSlot) -> None:
        finish = await slot.run(full=WorkerEnded(failure=replace(FULL, is_at_start=False)))
        assert finish.error is not None
        assert finish.error.kind == LOST
        assert slot.nodes.failed_disks == {"full": (1, FULL.message)}

    play(test)


def test_a_slot_whose_workers_are_on_a_node_that_another_has_found_full_leaves_it(play: Any) -> None:
    async def test(slot: PlayedSlot) -> None:
        assert (await slot.run(full=GOOD, other=GOOD)).next
        slot.nodes.withheld.add("full")
        await slot.run(other=GOOD, third=GOOD)
        assert slot.runner.closed_count == 1
        assert slot.runner.selectors == [None, {"ray.io/node-id": "!in(full)"}]
        slot.nodes.withheld.add("third")
        finish = await slot.run(other=GOOD, third=GOOD)
        assert not finish.next, "a claim tells where there is room"
        assert slot.runner.closed_count == 2

    play(test)


def full(_: Any) -> None:
    """Stands for `ray.put` where the object store has no room."""
    raise OutOfDiskError("Local disk is full")


def test_a_slot_whose_own_node_has_no_room_for_the_package_gives_the_trial_back_and_names_that_node(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(slot: PlayedSlot) -> None:
        monkeypatch.setattr("ray.put", full)
        finish = await slot.execute({"package": slot.service.add_package("x = 1")})
        assert finish.error is not None
        assert finish.error.kind == PREEMPTED, "it costs the trial nothing"
        assert NO_ROOM in finish.error.message
        assert finish.error.message.endswith("; the trial starts again where there is room")
        assert not finish.next
        ((number, reason),) = (slot.nodes.failed_disks["own"],)
        assert number == 1
        assert NO_ROOM in reason

    play(test)


def test_a_trial_without_a_package_whose_workers_code_finds_no_room_is_given_back_too(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(slot: PlayedSlot) -> None:
        monkeypatch.setattr("ray.put", full)
        finish = await slot.execute({})
        assert finish.error is not None
        assert finish.error.kind == PREEMPTED
        assert finish.error.message.startswith(f"Paceline's code for workers {STORED_NOTHING}")
        assert "own" in slot.nodes.failed_disks

    play(test)


def test_the_workers_code_is_stored_once(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = []

    def store(value: Any) -> Any:
        stored.append(value)
        return value

    async def test(slot: PlayedSlot) -> None:
        monkeypatch.setattr("ray.put", store)
        for _ in range(2):
            await slot.run(node=GOOD)
        assert [one.__qualname__ for one in stored] == [run_job.__qualname__]

    play(test)


def test_a_slot_whose_own_node_has_room_again_loses_the_attempt(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be too large for any node, so the losses are counted."""

    def full_once(_: Any) -> None:
        monkeypatch.setattr("ray.put", lambda value: value)
        raise OutOfDiskError("Local disk is full")

    async def test(slot: PlayedSlot) -> None:
        monkeypatch.setattr("ray.put", full_once)
        finish = await slot.execute({"package": slot.service.add_package("x = 1")})
        assert finish.error is not None
        assert finish.error.kind == LOST
        assert NO_ROOM in finish.error.message
        assert not slot.nodes.failed_disks
        assert slot.availability.why_broken == finish.error.message, "the slot's log says why it closes"

    play(test)


def test_a_status_has_the_failed_disks_that_are_still_withheld() -> None:
    now = 1000.0
    nodes = SlotNodes("own", withheld=WithheldNodes(lambda: now))
    nodes.add_failed_disks({"a": "full"})
    now += 100
    nodes.add_failed_disks({"b": "fails"})
    nodes.withheld.add("c", "another slot's")
    first: dict[str, Any] = {"node": "a", "number": 1, "reason": "full", "seconds": WITHHELD_SECONDS - 100}
    second: dict[str, Any] = {"node": "b", "number": 2, "reason": "fails", "seconds": WITHHELD_SECONDS}
    assert nodes.failed_disks_now() == [first, second]
    now += WITHHELD_SECONDS - 50
    assert nodes.failed_disks_now() == [second | {"seconds": 50}]


def test_a_plan_says_which_nodes_a_later_one_would_leave_out(play: Any) -> None:
    async def test(slot: PlayedSlot) -> None:
        await slot.run(other=GOOD)
        slot.nodes.withheld.add("full")
        (plan,) = slot.runner.plans
        assert plan.next_scaling()["label_selector"] == {"ray.io/node-id": "!in(full)"}

    play(test)


def test_a_node_is_withheld_for_some_minutes_since_its_last_failure() -> None:
    now = 1000.0
    nodes = WithheldNodes(lambda: now)
    nodes.add("a", "full")
    now += 100
    nodes.add("b", "fails")
    nodes.add("a", "full again", seconds=1)
    assert nodes.reasons() == {"a": "full", "b": "fails"}
    assert nodes.seconds_left() == {"a": WITHHELD_SECONDS - 100, "b": WITHHELD_SECONDS}
    now += WITHHELD_SECONDS - 100
    assert ("a" in nodes, "b" in nodes, "c" in nodes) == (False, True, False)
    assert nodes.reasons() == {"b": "fails"}
