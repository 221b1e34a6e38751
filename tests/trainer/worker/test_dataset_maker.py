"""What a dataset server says of Ray's errors and the user's while it makes the datasets."""

from typing import Any

import pytest
from ray.exceptions import RpcError

from trainer.worker.datasets.dataset_server import DatasetMaker
from trainer.worker.failures import LOST, USER_ERROR, DatasetNotMade

pytestmark = pytest.mark.ray  # Ray's filters of warnings: importing it


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RpcError("the head is away"), LOST),
        (RuntimeError("WrongClusterID"), LOST),
        (ValueError("bad column"), USER_ERROR),
    ],
)
def test_an_error_of_the_connection_to_ray_is_not_the_users(error: Exception, kind: str) -> None:
    def make() -> dict[str, Any]:
        raise error

    with pytest.raises(DatasetNotMade, match="the datasets could not be made: ") as raised:
        DatasetMaker(make, keeps_failure=True).datasets()
    assert raised.value.failure.kind == kind
