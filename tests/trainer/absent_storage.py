"""Trials whose storage is away for a while."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.settings import Settings
from tests.conftest import Api, a_spec, running
from tests.trainer.conftest import USER_CODE, another_agent, until
from tests.trainer.fake_service import PATIENCE_SECONDS
from tests.trainer.gcs_server import GcsServer
from tests.trainer.s3_server import S3Server


@contextmanager
def service_and_agent(data_dir: Path, sqlite: Path, storage: str, ray_address: str) -> Iterator[Api]:
    """A service, on a copy of the empty SQLite database, with an agent that works for it."""
    url = f"sqlite:///{shutil.copy(sqlite, data_dir / 'paceline.db')}"
    settings = Settings(data_dir=data_dir, database_url=url, storage=storage, lease_seconds=PATIENCE_SECONDS)
    settings.prepare_directories()
    with running(settings) as api, another_agent(str(api.http.base_url), "trainer", ray_address):
        yield api


def shards(bucket: S3Server | GcsServer, folder: str) -> list[str]:
    """The files of ranks in the folder's checkpoints."""
    return [name for name in bucket.names() if name.startswith(folder) and "/shard-" in name]


def started(api: Api, record: Path, **config: Any) -> tuple[str, str]:
    """The experiment's name, and the id of its only trial."""
    package = api.post("/v1/packages", 201, params={"filename": "train.py"}, content=USER_CODE.read_bytes())["id"]
    trainer = {"entrypoint": "train:train_fn", "package": package, "scaling": {"num_workers": 2}}
    spec = a_spec(
        config={"record": str(record), **config},
        objectives=[{"metric": "epoch", "direction": "maximize"}],
        step_metric="epoch",
        trainer=trainer,
        limits={"max_trials": 1},
    )
    name = str(api.post("/v1/experiments", 201, json=spec)["name"])
    until(lambda: api.get(f"/v1/experiments/{name}/trials")["items"], "the trial has started")
    return name, str(api.get(f"/v1/experiments/{name}/trials")["items"][0]["id"])


def ended(api: Api, trial: str) -> dict[str, Any]:
    shown: dict[str, Any] = api.get(f"/v1/trials/{trial}")
    until(lambda: shown.update(api.get(f"/v1/trials/{trial}")) or shown["ended_at"], "the trial has ended")
    return shown


def check_archive_of_step_3(api: Api, trial: str) -> None:
    """It has both ranks' parts, and is downloaded from any place on."""
    archive = api.http.get(f"/v1/trials/{trial}/checkpoints/3/archive").raise_for_status()
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as tar:
        files = {one.name: tar.extractfile(one) for one in tar if one.isfile()}
        assert {name: file.read() for name, file in files.items() if file} == {
            f"trial-0-step-3/shard-{rank}": b"3" for rank in (0, 1)
        }
    rest = api.http.get(f"/v1/trials/{trial}/checkpoints/3/archive", headers={"Range": "bytes=700-"})
    assert rest.content == archive.content[700:]


def continued_after_absence(api: Api, bucket: S3Server | GcsServer, record: Path) -> dict[str, Any]:
    """A trial that goes on from its checkpoint, and saves again, after its bucket was away. It is slow then."""
    _, trial = started(api, record, do="save", steps=8, pause=0.5)
    until(lambda: (api.get(f"/v1/trials/{trial}")["checkpoint"] or {}).get("step", 0) >= 2, "a checkpoint is saved")
    bucket.is_away = True
    until(lambda: api.get("/v1/agents")["items"][0]["storage_error"], "the agent knows")
    until(lambda: api.get(f"/v1/trials/{trial}")["status"] == "queued", "the attempt cannot save")
    bucket.is_away, bucket.is_slow = False, True
    shown = ended(api, trial)
    first, *_, last = shown["attempts"]
    assert shown["status"] == "completed", [one["error"] for one in shown["attempts"]]
    assert (first["outcome"], first["error"]["kind"], first["error"]["began"]) == ("failed", "lost", True)
    assert last["resumed_from"]
    resumed = max(int(line.split()[2]) for line in record.read_text().splitlines() if line.split()[1] == "from")
    assert resumed >= 2
    assert shown["checkpoint"]["step"] == resumed + 8, "and it saves again"
    return shown
