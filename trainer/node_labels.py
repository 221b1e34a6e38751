"""Labels of Ray's nodes, and the selectors that choose nodes by them. The rules are Ray's.

A selector names labels: `{zone: a}`, `{zone: "!a"}`, `{zone: "in(a, b)"}`, `{zone: "!in(a, b)"}`. A node without the
label has none of the values, so `!a` selects it.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence

Labels = Mapping[str, str]
Selector = Mapping[str, str]

_NAME = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_VALUE = re.compile(rf"(?P<no>!?)(?:in\((?P<some>{_NAME}(?:, ?{_NAME})*)\)|(?P<one>{_NAME}))")
_MAX_PREFIX = 253


def is_label_key(text: str) -> bool:
    """Whether a node may have a label of this name, such as `zone` or `example.com/zone`."""
    prefix, slash, name = text.rpartition("/")
    parts = [*prefix.split("."), name] if slash else [name]
    return len(prefix) <= _MAX_PREFIX and all(re.fullmatch(_NAME, part) for part in parts)


def is_label_value(text: str) -> bool:
    """Whether a node may have a label of this value, which selects the nodes that have it."""
    return re.fullmatch(_NAME, text) is not None


def is_condition(text: str) -> bool:
    """Whether it is a condition for a label's value."""
    return _VALUE.fullmatch(text) is not None


def selects(selector: Selector, labels: Labels) -> bool:
    """Whether a node with these labels is among those that the selector chooses."""
    return all(_holds(condition, labels.get(key)) for key, condition in selector.items())


def _holds(condition: str, value: str | None) -> bool:
    found = _VALUE.fullmatch(condition)
    if found is None:
        return False
    values = [one.strip() for one in (found["some"] or found["one"]).split(",")]
    return (value in values) is not bool(found["no"])


def selector_text(selector: Selector) -> str:
    """For people, such as `zone=a and disk=!hdd`."""
    return " and ".join(f"{key}={condition}" for key, condition in selector.items())


def count_placed(selectors: Sequence[Selector], nodes: Sequence[tuple[int, Labels]]) -> int:
    """How many workers, from the first one on, can have nodes that they select at the same time.

    Each worker has a selector; each node has room for so many workers, and labels.
    """
    placement = _Placement(selectors, nodes)
    return next((worker for worker in range(len(selectors)) if not placement.add(worker)), len(selectors))


class _Placement:
    """A node for each worker, found by augmenting paths: a worker may move to make room for another one."""

    def __init__(self, selectors: Sequence[Selector], nodes: Sequence[tuple[int, Labels]]) -> None:
        self._room = [count for count, _ in nodes]
        self._selected = [
            [index for index, (count, labels) in enumerate(nodes) if count and selects(selector, labels)]
            for selector in selectors
        ]
        self._held: list[set[int]] = [set() for _ in nodes]
        self._node_of: dict[int, int] = {}

    def add(self, worker: int) -> bool:
        """Whether there is a place for the worker beside those that have one already."""
        wanted_by: dict[int, int] = {}
        searching = deque([worker])
        while searching:
            mover = searching.popleft()
            for node in self._selected[mover]:
                if node in wanted_by:
                    continue
                wanted_by[node] = mover
                if len(self._held[node]) < self._room[node]:
                    self._move_along(node, wanted_by)
                    return True
                searching.extend(self._held[node])
        return False

    def _move_along(self, free: int, wanted_by: Mapping[int, int]) -> None:
        node: int | None = free
        while node is not None:
            mover = wanted_by[node]
            left = self._node_of.get(mover)
            self._node_of[mover] = node
            self._held[node].add(mover)
            if left is not None:
                self._held[left].discard(mover)
            node = left
