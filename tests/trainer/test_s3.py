"""Checkpoints in a bucket: saved, resumed from, downloaded and deleted, also after the bucket was away for a while."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

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
from tests.trainer.s3_server import S3Server
from trainer.agent.slot_pool.slot_pool import IDLE_SLOT_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LAST_CALLS = 25
"""To the bucket, which are shown when a test fails."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, sqlite: Path, ray_address: str, bucket: S3Server) -> Iterator[Api]:
    """A service with an agent that works for it: one for both tests, because an agent's start is slow."""
    with service_and_agent(tmp_path_factory.mktemp("service"), sqlite, bucket.storage, ray_address) as api:
        yield api


def wait_for_newest_only(s3: S3Server, folder: str, newest: str) -> None:
    """Wait until both ranks' parts of the newest checkpoint are alone in the experiment's folder."""
    name = PurePosixPath(newest.partition("?")[0]).name
    wanted = {f"{folder}trial-0-attempt-1/{name}/shard-{rank}" for rank in (0, 1)}
    with contextlib.suppress(AssertionError):
        until(lambda: set(shards(s3, folder)) == wanted, "only the newest is kept")
    last = "\n".join(s3.answers[-LAST_CALLS:])
    times = f"now {time.monotonic():.3f}, deletions from {s3.deletes_from:.3f}, {len(s3.answers)} calls"
    assert set(shards(s3, folder)) == wanted, f"{last}\n{times}"


def denies_completing_the_third() -> Callable[[str, str], bool]:
    """Once, for the file of rank 0 in the third checkpoint of a trial."""
    denied: list[str] = []

    def denies(method: str, path: str) -> bool:
        is_last_call = method == "POST" and path.endswith("/shard-0") and path not in denied
        if is_last_call:
            denied.append(path)
        return is_last_call and len(denied) == 3

    return denies


def test_checkpoints_in_a_slow_and_overloaded_bucket_are_kept_downloaded_and_deleted(
    api: Api, s3: S3Server, record: Path
) -> None:
    s3.is_slow, s3.deletes_from = True, math.inf
    s3.denies_writing = denies_completing_the_third()
    name, trial = started(api, record, do="save", steps=3)
    shown = ended(api, trial)
    s3.deletes_from = time.monotonic() + 2 * IDLE_SLOT_SECONDS
    assert (shown["status"], shown["failure_kind"]) == ("completed", None), [one["error"] for one in shown["attempts"]]
    assert shown["checkpoint"]["step"] == 3
    folder = f"runs/{name}-{shown['experiment_id']}/"
    wait_for_newest_only(s3, folder, shown["checkpoint"]["uri"])

    check_archive_of_step_3(api, trial)

    api.http.delete(f"/v1/experiments/{name}").raise_for_status()
    until(lambda: not any(one.startswith(folder) for one in s3.names()), "the experiment's checkpoints are deleted")
    assert s3.refused > 0


def test_a_trial_continues_from_a_slow_and_overloaded_bucket_after_it_was_away(
    api: Api, s3: S3Server, record: Path
) -> None:
    shown = continued_after_absence(api, s3, record)
    assert "storage must have room" in shown["attempts"][0]["error"]["message"]
