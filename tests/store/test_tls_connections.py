"""A service whose PostgreSQL is reached through TLS, and whose certificate is verified."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import Settings
from tests.conftest import running
from tests.databases import postgres_database
from tests.tls import Authority, authority
from tests.tls_postgres import NEVER_SHOWN, postgres_with_tls

pytestmark = pytest.mark.slow


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    return authority(tmp_path / "own")


@pytest.fixture
def plain(postgres: str) -> Iterator[str]:
    with postgres_database(postgres) as url:
        yield url


def upgraded(url: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", "db", "upgrade"]
    environment = os.environ | {"PACELINE_DATABASE_URL": url, "PACELINE_DATA_DIR": str(data_dir)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_service_works_on_a_verified_connection(plain: str, own: Authority, tmp_path: Path) -> None:
    with postgres_with_tls(plain, own, sslmode="verify-full", sslrootcert=str(own.file)) as url:
        ended = upgraded(url, tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")
        settings = Settings(data_dir=tmp_path, database_url=url, storage=str(tmp_path))
        settings.prepare_directories()
        with running(settings) as service:
            held = service.ask(service.create()["name"])
            assert held
            held.report(accuracy=0.5, notes="x" * 100_000)
            held.finish()
            assert held.shown()["status"] == "completed"


def test_a_certificate_of_another_authority_is_an_error_without_the_password(
    plain: str, own: Authority, tmp_path: Path
) -> None:
    other = authority(tmp_path / "other")
    with postgres_with_tls(plain, own, sslmode="verify-full", sslrootcert=str(other.file)) as url:
        ended = upgraded(url, tmp_path)
    assert ended.returncode == 1
    assert "certificate verify failed" in ended.stderr
    assert ended.stderr.startswith("error: the database postgresql+psycopg://")
    assert NEVER_SHOWN not in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_certificate_for_another_host_is_an_error(plain: str, own: Authority, tmp_path: Path) -> None:
    with postgres_with_tls(plain, own, sslmode="verify-full", sslrootcert=str(own.file)) as url:
        ended = upgraded(url.replace("@127.0.0.1:", "@localhost:"), tmp_path)
    assert ended.returncode == 1
    assert 'does not match host name "localhost"' in ended.stderr


def test_a_missing_file_of_an_authority_is_named(plain: str, own: Authority, tmp_path: Path) -> None:
    with postgres_with_tls(plain, own, sslmode="verify-full", sslrootcert="/no/such.pem") as url:
        ended = upgraded(url, tmp_path)
    assert ended.returncode == 1
    assert 'root certificate file "/no/such.pem" does not exist' in ended.stderr
