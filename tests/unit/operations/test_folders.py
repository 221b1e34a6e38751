"""URIs of checkpoints and of the folders that they are in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.operations.checkpoints.folders import (
    UrisByFolder,
    chooses_server,
    is_below,
    reached_as,
    run_folder_of,
    uri_below,
)

RUN = "e-1/trial-2-attempt-1"
PARTS = st.sampled_from(["a", "ab", "b", "", ".", "a?x=1", "a!"])
URIS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(URIS), URIS)
def test_the_uris_below_a_folder_are_those_that_are_found_one_by_one(uris: list[str], folder: str) -> None:
    assert list(UrisByFolder(uris).below(folder)) == sorted({uri for uri in uris if is_below(uri, folder)})


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        (f"s3://b/{RUN}/c", f"s3://b/{RUN}"),
        (f"/s/{RUN}/c/", f"/s/{RUN}"),
        (f"/s/{RUN}/c/d?region=eu", f"/s/{RUN}"),
        (f"s3://b/{RUN}/c/d?region=eu", f"s3://b/{RUN}?region=eu"),
        (f"/s/{RUN}/{RUN}/c", f"/s/{RUN}/{RUN}"),
        (f"/s/{RUN}", None),
        (f"/s/{RUN}/", None),
        (f"/{RUN}/c", None),
        (f"{RUN}/c", None),
        (f"/s/{RUN}0/c", None),
        (f"/s/other-{RUN}/c", None),
        (f"/s/{RUN}//c", None),
        (f"/s/../{RUN}/c", None),
        (f"/s/{RUN}/./c", None),
        (f"/s/{RUN}/c\n", None),
    ],
)
def test_a_checkpoint_is_of_a_run_if_it_is_below_its_folder(uri: str, folder: str | None) -> None:
    assert run_folder_of(uri, RUN) == folder


def test_a_question_mark_in_a_path_is_part_of_a_name() -> None:
    assert is_below("/s/a?b/c", "/s/a?b")
    assert not is_below("/s/a/c", "/s/a?b")
    assert uri_below("/s/a?b", "c") == "/s/a?b/c"
    assert reached_as("/s", "/s/c?1") == "/s/c?1"
    assert reached_as("s3://b?region=eu", "s3://b/c") == "s3://b/c?region=eu"


@pytest.mark.parametrize("uri", ["s3://b/c?endpoint_override=h", "s3:/b/c?endpoint_override=h"])
def test_a_query_that_is_not_the_storages_chooses_a_server(uri: str) -> None:
    assert chooses_server(uri, "s3://b?region=eu")
    assert chooses_server(uri, "/s")
