"""The settings: what a data directory, a storage and a limit may be."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from service.cli.upgraded_database import present_database, upgraded_database
from service.operations.tokens import all_tokens
from service.settings import PROBE_PREFIX, BadSettings, Settings

NOT_ZERO = (
    "MAX_CONNECTIONS",
    "REQUEST_SECONDS",
    "COMPUTE_SECONDS",
    "STALL_SECONDS",
    "MAX_PACKAGE_BYTES",
    "LEASE_SECONDS",
)
TIMES = (
    "LEASE_SECONDS",
    "COMPUTE_SECONDS",
    "REQUEST_SECONDS",
    "STALL_SECONDS",
    "PICTURE_SECONDS",
    "SYSTEM_METRICS_SECONDS",
    "KEEP_LOGS_DAYS",
    "KEEP_PACKAGES_DAYS",
    "KEEP_EXPERIMENTS_DAYS",
)


def test_the_database_is_in_a_data_directory_of_any_name(tmp_path: Path) -> None:
    name = "ä?b%20c#d@e:f+ g"
    with upgraded_database(Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path / name)})):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with closing(sqlite3.connect(tmp_path / name / "paceline.db")) as database:
        assert database.execute("select count(*) from experiments").fetchone() == (0,)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space there, or set PACELINE_DATA_DIR"),
        (errno.EROFS, "mount its file system writable, or set PACELINE_DATA_DIR"),
        (errno.EACCES, "give the service's user write permission, or set PACELINE_DATA_DIR"),
        (errno.EIO, "set PACELINE_DATA_DIR"),
    ],
)
def test_the_message_about_a_data_directory_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(BadSettings) as refused:
        Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path)}).prepare_directories()
    words = f"the data directory {tmp_path} cannot be written ({os.strerror(number)}); {remedy} to another directory"
    assert str(refused.value) == words


def test_a_link_as_data_directory_is_closed_to_other_users(tmp_path: Path) -> None:
    real, link, elsewhere = tmp_path / "real", tmp_path / "link", tmp_path / "elsewhere"
    model = real / "checkpoints" / "model.pt"
    for directory in (model.parent, elsewhere):
        directory.mkdir(parents=True)
    model.touch()
    link.symlink_to(real)
    (real / "users").symlink_to(elsewhere)
    opened = {real: 0o755, model: 0o644, elsewhere: 0o755}
    for path, mode in opened.items():
        path.chmod(mode)

    Settings.from_env({"PACELINE_DATA_DIR": str(link)}).prepare_directories()

    assert {path: path.stat().st_mode & 0o777 for path in opened} == opened | {real: 0o700}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        *((f"PACELINE_{name}=0", "must be more than 0") for name in NOT_ZERO),
        *((f"PACELINE_{name}=1e300", r"must be at most \d+, not 1e300") for name in TIMES),
        ("PACELINE_MAX_LOG_MB=1e305", "must be at most 1000000000, not 1e305"),
        ("PACELINE_MAX_PACKAGE_BYTES=1e300", "must be a whole number up to 1000000000000, not '1e300'"),
        ("PACELINE_MAX_CONNECTIONS=1e300", "must be a whole number up to 1000000, not '1e300'"),
        ("PACELINE_STORAGE=s3:/bucket/x", "must be a path, or a URI as s3://bucket/path, not as s3:/…"),
        ("PACELINE_STORAGE=s3://KEY:SE+CR@bucket/x", "must have no credentials"),
        ("PACELINE_STORAGE=s3://KEY:SE/CR@bucket/x", "must have no credentials"),
        ("PACELINE_STORAGE=s3://KEY:/SECR@bucket/x", "must have no credentials"),
        ("PACELINE_STORAGE=s3://KEY:12/CR@bucket/x", "must have no credentials"),
        ("PACELINE_STORAGE=abfs://:KEY@account.dfs.core.windows.net/x", "must have no credentials"),
        ("PACELINE_STORAGE=abfs://data@account.dfs.core.windows.net/x?client_secret=KEY", "must have no credentials"),
        ("PACELINE_STORAGE=gs://data/x?access_token=KEY", "must have no credentials"),
        ("PACELINE_STORAGE=abfs://data@account.dfs.core.windows.net/x?account_key=KEY", "must have no credentials"),
        ("PACELINE_STORAGE=file:/mnt/x", "must be a path, or a URI as s3://bucket/path, not as file:/…"),
    ],
)
def test_a_value_with_which_the_service_could_not_work_is_refused(setting: str, message: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(BadSettings, match=f"^{name} {message}") as refused:
        Settings.from_env({name: value})
    assert "CR@" not in str(refused.value)


@pytest.mark.parametrize(
    "storage",
    [
        "s3://bucket/a:b@c",
        "s3://bucket/runs?scheme=http&endpoint_override=127.0.0.1%3A9000",
        "hdfs://user@namenode:8020/runs",
        "hdfs://[::1]:8020/runs",
        "abfs://data@account.dfs.core.windows.net/runs",
        "file:///mnt/a:b@c",
        "/mnt/s3://a:b@c",
    ],
)
def test_a_storage_without_credentials_is_taken(storage: str) -> None:
    assert Settings.from_env({"PACELINE_STORAGE": storage}).storage == storage


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("gs://bucket/runs", "gs://bucket/runs?retry_limit_seconds=10"),
        ("gcs://bucket", "gcs://bucket?retry_limit_seconds=10"),
        ("gs://anonymous@bucket/x?scheme=http", "gs://anonymous@bucket/x?scheme=http&retry_limit_seconds=10"),
        ("gs://bucket/runs?retry_limit_seconds=60", "gs://bucket/runs?retry_limit_seconds=60"),
        ("s3://bucket/runs", "s3://bucket/runs"),
    ],
)
def test_calls_that_a_bucket_of_google_refuses_are_not_repeated_for_15_minutes(given: str, used: str) -> None:
    assert Settings.from_env({"PACELINE_STORAGE": given}).storage == used


@pytest.mark.parametrize("name", ["KEEP_LOGS_DAYS", "PICTURE_SECONDS", "SYSTEM_METRICS_SECONDS", "MAX_LOG_MB"])
def test_0_is_taken_where_it_has_a_meaning(name: str) -> None:
    Settings.from_env({f"PACELINE_{name}": "0"})


def test_a_data_directory_below_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    settings = Settings.from_env({"PACELINE_DATA_DIR": "~/tuning"})
    assert (settings.data_dir, settings.storage) == (Path("/home/me/tuning"), "/home/me/tuning/checkpoints")


def test_a_probe_of_another_process_with_the_same_number_is_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that share a data directory have the same numbers."""
    other = tmp_path / f"{PROBE_PREFIX}{os.getpid()}"
    touch = Path.touch

    def touch_and_lose(path: Path) -> None:
        touch(path)
        other.unlink(missing_ok=True)

    monkeypatch.setattr(Path, "touch", touch_and_lose)
    Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path)}).prepare_directories()


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "paceline.db").write_bytes(b"no database" * 1000)
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path)})
    with pytest.raises(BadSettings, match="cannot be read: file is not a database"), upgraded_database(settings):
        pass
    with pytest.raises(BadSettings, match="cannot be read: file is not a database"), present_database(settings):
        pass


def test_a_damaged_page_of_a_database_is_said_when_a_command_reads_it(tmp_path: Path) -> None:
    settings = Settings.from_env({"PACELINE_DATA_DIR": str(tmp_path)})
    with upgraded_database(settings) as database, database.engine.connect() as connection:
        roots = connection.execute(text("select rootpage from sqlite_master where tbl_name = 'tokens'")).scalars().all()
        size = connection.execute(text("pragma page_size")).scalar_one()
        connection.commit()
        connection.execute(text("pragma wal_checkpoint(truncate)"))
    with (tmp_path / "paceline.db").open("r+b") as file:
        for root in roots:
            file.seek((root - 1) * size)
            file.write(b"damage" * (size // 6))
    with pytest.raises(BadSettings, match="cannot be read: database disk image is malformed"):
        read_tokens(settings)


def read_tokens(settings: Settings) -> None:
    with present_database(settings) as database:
        all_tokens(database)
