"""What is logged of a raylet that the loop of prestarted processes cannot reach."""

import logging
from types import SimpleNamespace
from typing import Any

import grpc
import pytest


class Unavailable(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def test_it_is_logged_once_each_time_that_it_goes_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from trainer.agent import prestart_loop  # noqa: PLC0415 - heavy

    answers = iter([True, False, False, False, True, False, False])

    class Workers:
        def __init__(self, *_arguments: Any) -> None:
            pass

        def find(self) -> Any:
            if not next(answers):
                raise Unavailable
            return SimpleNamespace(all=frozenset({1}), unused=frozenset({1}))

    monkeypatch.setattr(prestart_loop, "IdleWorkers", Workers)
    node = SimpleNamespace(address="10.0.0.1:1", memory=4 * prestart_loop.GIBIBYTE)
    monkeypatch.setattr(prestart_loop, "raylets", lambda: {"n-1": node})
    loop = prestart_loop.PrestartLoop(1, {})
    with caplog.at_level(logging.INFO, logger=prestart_loop.logger.name):
        for _ in range(7):
            loop.run_once()
    assert [record.getMessage() for record in caplog.records] == [
        "the raylet of node n-1 does not answer: StatusCode.UNAVAILABLE"
    ] * 2
