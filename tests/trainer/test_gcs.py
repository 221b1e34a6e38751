"""Checkpoints in a bucket of Google Cloud Storage: saved, resumed from, downloaded and deleted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Api
from tests.trainer.absent_storage import (
    check_archive_of_step_3,
    continued_after_absence,
    ended,
    service_and_agent,
    shards,
    started,
)
from tests.trainer.conftest import until
from tests.trainer.gcs_server import RETRY_LIMIT_SECONDS, GcsServer

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def api(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    sqlite: Path,
    ray_address: str,
    google_bucket: GcsServer,
) -> Iterator[Api]:
    """A service with an agent that works for it; the parameter is how many seconds pyarrow repeats a refused call."""
    data_dir, storage = tmp_path_factory.mktemp("service"), google_bucket.storage_with(request.param)
    with service_and_agent(data_dir, sqlite, storage, ray_address) as api:
        yield api


# On a busy machine, even the first answer may take more than the few seconds in which an absence is noticed.
@pytest.mark.parametrize("api", [60], indirect=True, ids=["patient"])
def test_checkpoints_in_a_busy_bucket_are_kept_downloaded_and_deleted(api: Api, gcs: GcsServer, record: Path) -> None:
    gcs.is_slow = True
    name, trial = started(api, record, do="save", steps=3)
    shown = ended(api, trial)
    assert (shown["status"], shown["failure_kind"]) == ("completed", None), [one["error"] for one in shown["attempts"]]
    assert shown["checkpoint"]["step"] == 3, [one["error"] for one in shown["attempts"]]
    folder = f"runs/{name}-{shown['experiment_id']}/"
    newest = shown["checkpoint"]["uri"].partition("?")[0].rpartition("/")[2]
    wanted = {f"{folder}trial-0-attempt-1/{newest}/shard-{rank}" for rank in (0, 1)}
    until(lambda: set(shards(gcs, folder)) == wanted, "only the newest is kept")

    check_archive_of_step_3(api, trial)

    api.http.delete(f"/v1/experiments/{name}").raise_for_status()
    until(lambda: not any(one.startswith(folder) for one in gcs.all_names()), "the experiment's folder is deleted")
    until(lambda: api.get("/readyz")["pending_deletions"] == 0, "the service knows")
    assert gcs.refused > 0


@pytest.mark.parametrize("api", [RETRY_LIMIT_SECONDS], indirect=True, ids=["impatient"])
def test_a_trial_continues_from_a_bucket_after_it_was_away(api: Api, gcs: GcsServer, record: Path) -> None:
    gcs.is_slow = False
    continued_after_absence(api, gcs, record)
