"""What several tests of the stack need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stack.process_tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    yield tree
    for child in tree.children:
        child.kill()
