"""What is logged of a raylet that the loop of prestarted processes cannot reach."""

import logging
import threading
from types import SimpleNamespace
from typing import Any

import grpc
import pytest


class Unavailable(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


class Workers:
    """A node's idle processes, which are enough whenever its raylet answers."""

    def __init__(self, answers: list[bool]) -> None:
        self._answers = iter(answers)

    def find(self) -> Any:
        if not next(self._answers):
            raise Unavailable
        return SimpleNamespace(all=frozenset({1}), unused=frozenset({1}))


def test_it_is_logged_once_each_time_that_it_goes_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from trainer.agent import prestarted_workers  # noqa: PLC0415 - heavy

    answers = [True, False, False, False, True, False, False]
    workers: Any = Workers(answers)
    loop = prestarted_workers.PrestartLoop(1, {}, nodes={"n-1": prestarted_workers.PrestartNode(workers, wanted=1)})
    monkeypatch.setattr(loop, "_find_nodes", lambda: None)
    with caplog.at_level(logging.INFO, logger=prestarted_workers.logger.name):
        for _ in answers:
            loop.run_once()
    # An agent of other tests may have a loop of its own in this process.
    own = [record for record in caplog.records if record.thread == threading.get_ident()]
    assert [record.getMessage() for record in own] == [
        "the raylet of node n-1 does not answer: StatusCode.UNAVAILABLE"
    ] * 2
