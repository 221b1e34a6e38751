"""Which nodes a slot uses. Starts no Ray."""

from trainer.slot.nodes.slot_nodes import SlotNodes


def test_the_nodes_of_a_worker_group_are_used_until_another_one_starts() -> None:
    nodes = SlotNodes("own")
    for node in ("x", "y"):
        nodes.add_worker(node, "first")
    assert nodes.used == {"own", "x", "y"}
    for node in ("y", "z"):
        nodes.add_worker(node, "second")
    assert nodes.used == {"own", "y", "z"}
    nodes.drain(["x"], 0)
    assert (nodes.drained, nodes.seconds_left()) == (set(), None)
    assert nodes.workers == {"x", "y", "z"}, "the package is to be removed from all of them"


def test_a_drained_node_is_left_when_a_worker_comes_to_it() -> None:
    nodes = SlotNodes("own")
    nodes.drain(["x"], 600)
    nodes.add_worker("x", "first")
    assert nodes.drained == {"x"}


def test_a_slot_without_a_worker_group_uses_its_own_node_alone() -> None:
    nodes = SlotNodes("own")
    nodes.add_worker("x", "first")
    nodes.group_ended()
    nodes.drain(["x", "own"], 600)
    assert nodes.drained == {"own"}
