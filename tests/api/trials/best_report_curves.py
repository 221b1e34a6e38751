"""Experiments that count a trial by its best report."""

from tests.conftest import Api, Held

BEST = [{"metric": "accuracy", "direction": "maximize", "report": "best"}]
CURVE = (0.5, 0.9, 0.7, 0.4)


def given(service: Api, name: str) -> Held:
    held = service.ask(name)
    assert held
    return held
