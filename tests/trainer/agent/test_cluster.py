"""What an agent sees of its cluster. Needs no Ray."""

import math
import time

import pytest

from trainer.agent.cluster import draining_nodes
from trainer.ray_train import cluster_state


@pytest.fixture
def node_deadlines(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    deadlines: dict[str, int] = {}
    monkeypatch.setattr(cluster_state, "drain_deadlines", lambda: deadlines)
    return deadlines


def test_a_node_is_drained_until_its_deadline(node_deadlines: dict[str, int]) -> None:
    node_deadlines["a-node"] = int(1000 * (time.time() + 600))
    assert 0 < draining_nodes()["a-node"] <= 600


@pytest.mark.parametrize("deadline", [0, 1000], ids=["none", "passed by the agent's clock"])
def test_a_node_that_lives_past_its_deadline_has_none(node_deadlines: dict[str, int], deadline: int) -> None:
    node_deadlines["a-node"] = deadline
    assert draining_nodes() == {"a-node": math.inf}
