"""A slot keeps exactly those checkpoints on the storage that the service lists, in whatever order they become known."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.conftest import Api, Held
from tests.trainer.fake_service import FakeService
from trainer.slot.assignment import Assignment
from trainer.slot.checkpoints.checkpoint_ledger import CheckpointLedger

pytestmark = [pytest.mark.slow, pytest.mark.databases("sqlite")]

BEST = {"metric": "accuracy", "direction": "maximize", "report": "best"}

Saved = tuple[int, int, float]
"""The sequence of a report, its epoch, and its accuracy."""


class Storage:
    """What is on the storage while a slot executes the attempt, which resumes from nothing."""

    def __init__(self, held: Held, before: Iterable[str] = ()) -> None:
        given = held.assignment
        with FakeService("/s").serving() as fake:
            fields = {name: given[name] for name in ("keep_checkpoints", "earlier_checkpoints")}
            trial = fake.add_trial({"entrypoint": "train:train_fn"}, **fields)
            self.ledger = CheckpointLedger(Assignment.from_json(fake.assign(trial)), self.remove)
        self.held = held
        self.uris = set(before)

    def remove(self, uri: str) -> None:
        self.uris.remove(uri)

    def save(self, sequence: int, epoch: int, accuracy: float) -> None:
        """Save the checkpoint of a report. A report that was made before is repeated with its checkpoint."""
        uri = f"/{self.held.assignment['attempt']}/{sequence}"
        self.uris.add(uri)
        report = {"sequence": sequence, "metrics": {"epoch": epoch, "accuracy": accuracy}, "checkpoint": uri}
        answer = self.held.call("reports", body={"reports": [report]})
        self.ledger.add_known(sequence, uri, answer["kept"])


def listed(held: Held) -> set[str]:
    return {one["uri"] for one in held.api.get(f"/v1/trials/{held.trial}/checkpoints")["items"]}


def given(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held


@pytest.mark.parametrize("objective", [BEST, {**BEST, "report": "newest"}])
@pytest.mark.parametrize(
    ("keep", "saved"),
    [
        (2, [(0, 0, 0.1), (1, 0, 0.2), (2, 0, 0.3), (3, 1, 0.2), (4, 1, 0.1), (5, 1, 0.4)]),
        (1, [(0, 0, 0.3), (2, 2, 0.1), (1, 1, 0.2)]),
        (2, [(0, 0, 0.3), (3, 3, 0.1), (1, 1, 0.2), (2, 2, 0.4)]),
        (3, [(0, 5, 0.3), (1, 3, 0.1), (2, 5, 0.2), (3, 4, 0.2), (4, 3, 0.2)]),
    ],
    ids=["several at a step", "in the background", "several in the background", "steps that decrease"],
)
def test_a_slot_keeps_those_that_the_service_lists(
    service: Api, keep: int, saved: list[Saved], objective: dict[str, Any]
) -> None:
    name = service.create(checkpoints={"keep": keep}, step_metric="epoch", objectives=[objective])["name"]
    held = given(service, name)
    storage = Storage(held)
    for sequence, epoch, accuracy in sorted(saved):
        report = {"sequence": sequence, "metrics": {"epoch": epoch, "accuracy": accuracy}}
        held.call("reports", body={"reports": [report]})
    for one in saved:
        storage.save(*one)
        assert storage.uris == listed(held)


def test_a_slot_keeps_those_that_the_service_lists_when_an_attempt_saves_steps_again(service: Api) -> None:
    name = service.create(checkpoints={"keep": 2}, step_metric="epoch", failures={"max_retries": 1})["name"]
    first = given(service, name)
    before = Storage(first)
    for sequence, epoch in enumerate((1, 2, 3)):
        before.save(sequence, epoch, 0.5)
    first.fail()
    second = given(service, name)
    storage = Storage(second, before.uris)
    for sequence, epoch in enumerate((3, 1, 2, 3)):
        storage.save(sequence, epoch, 0.5)
        assert storage.uris == listed(second)


def test_a_checkpoint_after_the_deciding_report_is_answered_with_those_that_are_kept(service: Api) -> None:
    rule = {"rule": "threshold", "upper": 1.5}
    name = service.create(objectives=[{"metric": "loss", "direction": "minimize"}], early_stopping=rule)["name"]
    held = given(service, name)
    held.report(loss=1.0, checkpoint="/1/0")
    assert held.report(loss=2.0)["deciding_sequence"] == 1
    assert held.report(loss=1.0, checkpoint="/1/2")["kept"] == ["/1/0"]
    assert listed(held) == {"/1/0"}


def test_the_newest_stays_until_the_end_although_a_pinned_one_keeps_its_step(service: Api) -> None:
    """The training function may read it with `get_checkpoint()`."""
    name = service.create(step_metric="epoch", failures={"max_retries": 1})["name"]
    first = given(service, name)
    before = Storage(first)
    before.save(0, 1, 0.5)
    service.call("PUT", f"/v1/trials/{first.trial}/checkpoints/1/pin", 200)
    first.fail()
    storage = Storage(given(service, name), before.uris)
    storage.save(0, 1, 0.6)
    assert storage.uris == {"/1/0", "/2/0"}
    storage.ledger.close()
    assert storage.uris == listed(storage.held) == {"/1/0"}
