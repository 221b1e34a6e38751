"""URIs of checkpoints and of the folders that they are in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.operations.checkpoints.folders import UrisByFolder, is_below, run_folder_of

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
        (f"/s/{RUN}/c/d?region=eu", f"/s/{RUN}?region=eu"),
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
