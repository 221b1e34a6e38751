"""Which names a training function may give its checkpoints."""

from pathlib import Path
from typing import Any

import pytest

from trainer.worker.checkpoint_names import checked_name


@pytest.mark.parametrize("name", ["epoch-1", "lr=0.1?epoch=0", "a b", "epoch#1", "50%", "ü", "a/b"])
def test_a_directory_may_have_any_name_in_a_path(name: str) -> None:
    assert checked_name(name, is_in_uri=False) == name


def test_needless_parts_of_a_name_are_left_out() -> None:
    assert checked_name("./a/../b/", is_in_uri=True) == "b"
    assert checked_name(Path("a/b"), is_in_uri=True) == "a/b"


@pytest.mark.parametrize("name", ["lr?1", "a b", "epoch#1", "50%", "ü", "a\nb", "a[0]"])
def test_a_name_that_a_uri_cannot_hold_is_refused_where_the_storage_is_one(name: str) -> None:
    with pytest.raises(ValueError, match="the storage is a URI"):
        checked_name(name, is_in_uri=True)


@pytest.mark.parametrize("name", [".", "..", "../evil", "/evil", "a/../../b", "a/.."])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="within the folder of the trial"):
        checked_name(name, is_in_uri=False)


def test_a_name_that_no_file_system_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="240 bytes"):
        checked_name("a/" + "n" * 300, is_in_uri=False)


@pytest.mark.parametrize("name", [5, b"a", ["a"]])
def test_a_name_must_be_text(name: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(name).__name__}"):
        checked_name(name, is_in_uri=False)
