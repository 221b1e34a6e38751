"""The package's requirements are the same for the service, which checks them, and for the slot, which installs them."""

import pytest

from trainer.wire import requirements_in


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"a\n\n  b >= 2  \n", [(1, "a"), (3, "b >= 2")]),
        (b"# a/b\na # b\n#c\n", [(2, "a")]),
        (b"a#b\nhttps://host/a.whl#sha256=0\n", [(1, "a#b"), (2, "https://host/a.whl#sha256=0")]),
        (b"a \\\n  --hash=x\nb\n", [(1, "a   --hash=x"), (3, "b")]),
        (b"# a \\\nb\n", [(2, "b")]),
        (b"a\\", [(1, "a")]),
        (b"\xef\xbb\xbfa\r\nb\r\n", [(1, "a"), (2, "b")]),
        (b"", []),
    ],
)
def test_requirements_are_read_as_pip_does(content: bytes, found: list[tuple[int, str]]) -> None:
    assert requirements_in(content) == found
