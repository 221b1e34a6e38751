"""The service's settings, from `PACELINE_*` environment variables."""

import math
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from service import private_files
from service.hosts import Authority, HostPattern, canonical_host
from trainer.process_log.redaction import HIDDEN_PARAMETER, MASK, without_users
from trainer.traces import OFF, ON

LEASE_KEY_FILE = "lease-key"
LEASE_KEY_BYTES = 32
DATABASE_FILE = "paceline.db"
MAX_PORT = 65_535
MOST_SECONDS = 365 * 24 * 3600
MOST_DAYS = 100_000
"""The longest times of the settings: with far longer ones, no date can be computed."""
MOST_LOG_MB = 10**9
MOST_PACKAGE_BYTES = 10**12
MOST_CONNECTIONS = 10**6

PROBE_PREFIX = ".writable-"
DATABASES = re.compile(r"sqlite:///(?!:memory:|\?).+|postgresql(\+psycopg)?://.*", re.DOTALL)

SECRETS_IN_QUERY = re.compile(r"[?&](access_token|account_key|client_secret|sas_token|secret_key|sig)=", re.IGNORECASE)
"""Parameters of a storage's URI; pyarrow takes a few of them."""

GCS_RETRY_SECONDS = 10
"""As long as S3's calls are repeated, or a little longer. Paceline repeats what matters by itself."""


class BadSettings(Exception):
    """The service cannot start with a setting; the message names it and says what would be right."""


class DatabaseAway(BadSettings):
    """The database that a setting names does not answer."""


@dataclass(frozen=True)
class Settings:
    """Durations are seconds. Checkpoints go to `storage`: a directory that all workers share, or a bucket's URI.

    `advertised_url` is the address at which agents and their slots reach this service, if it may be named to them; with
    several services on one database, they then go to another one when this one does not answer. `hosts` are the names
    by which callers without a token may reach the service, besides loopback and its own address.
    The `keep_…_days` are described in `service.operations.age_retention`; 0 is no limit.
    `picture_seconds` is the interval at which the charts on a running experiment's MLflow run are redrawn; 0 is never.
    `system_metrics_seconds` is the interval at which the nodes of running trials are sampled; 0 is never.
    """

    data_dir: Path
    database_url: str
    storage: str
    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[HostPattern, ...] = ()
    advertised_url: str | None = None
    mlflow_uri: str | None = None
    mlflow_ui: str | None = None
    picture_seconds: float = 60
    lease_seconds: float = 30
    system_metrics_seconds: float = 10
    max_package_bytes: int = 50_000_000
    max_log_bytes: int = 100_000_000
    keep_logs_days: float = 90
    keep_packages_days: float = 30
    keep_experiments_days: float = 0
    compute_seconds: float = 60
    max_followers: int = 2000
    max_connections: int = 4000
    request_seconds: float = 20
    stall_seconds: float = 30
    insecure: bool = False
    require_tokens: bool = False
    tracing: bool = False

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Raises BadSettings for a value that cannot be parsed."""
        data_dir = expanded(Path(env.get("PACELINE_DATA_DIR") or "paceline-data")).absolute()
        mlflow_uri = env.get("PACELINE_MLFLOW_URI") or None
        return cls(
            data_dir=data_dir,
            database_url=_database_url(env.get("PACELINE_DATABASE_URL") or sqlite_url(data_dir / DATABASE_FILE)),
            storage=storage_location(env.get("PACELINE_STORAGE") or str(data_dir / "checkpoints")),
            host=env.get("PACELINE_HOST") or cls.host,
            port=_whole(env, "PACELINE_PORT", cls.port, most=MAX_PORT),
            hosts=_hosts(env.get("PACELINE_HOSTS", "")),
            advertised_url=_advertised_url(env.get("PACELINE_ADVERTISED_URL", "")),
            mlflow_uri=mlflow_uri,
            mlflow_ui=env.get("PACELINE_MLFLOW_UI") or (mlflow_uri and without_credentials(mlflow_uri)),
            picture_seconds=_seconds(env, "PACELINE_PICTURE_SECONDS", cls.picture_seconds),
            lease_seconds=_lease_seconds(env, cls.lease_seconds),
            system_metrics_seconds=_seconds(env, "PACELINE_SYSTEM_METRICS_SECONDS", cls.system_metrics_seconds),
            max_package_bytes=_count(env, "PACELINE_MAX_PACKAGE_BYTES", cls.max_package_bytes, MOST_PACKAGE_BYTES),
            max_log_bytes=int(1e6 * _number(env, "PACELINE_MAX_LOG_MB", cls.max_log_bytes / 1e6, most=MOST_LOG_MB)),
            keep_logs_days=_days(env, "PACELINE_KEEP_LOGS_DAYS", cls.keep_logs_days),
            keep_packages_days=_days(env, "PACELINE_KEEP_PACKAGES_DAYS", cls.keep_packages_days),
            keep_experiments_days=_days(env, "PACELINE_KEEP_EXPERIMENTS_DAYS", cls.keep_experiments_days),
            compute_seconds=_time_limit(env, "PACELINE_COMPUTE_SECONDS", cls.compute_seconds),
            max_followers=_whole(env, "PACELINE_MAX_FOLLOWERS", cls.max_followers, most=MOST_CONNECTIONS),
            max_connections=_count(env, "PACELINE_MAX_CONNECTIONS", cls.max_connections, MOST_CONNECTIONS),
            request_seconds=_time_limit(env, "PACELINE_REQUEST_SECONDS", cls.request_seconds),
            stall_seconds=_time_limit(env, "PACELINE_STALL_SECONDS", cls.stall_seconds),
            insecure=switch(env, "PACELINE_INSECURE"),
            require_tokens=switch(env, "PACELINE_REQUIRE_TOKENS"),
            tracing=switch(env, "PACELINE_TRACING"),
        )

    @property
    def service_name(self) -> str:
        """What tells this service from others on the same database."""
        return self.advertised_url or f"{socket.gethostname()}:{self.port}"

    @property
    def packages_dir(self) -> Path:
        return self.data_dir / "packages"

    @property
    def logs_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def on_loopback(self) -> bool:
        return Authority(canonical_host(self.host)).is_loopback

    @cached_property
    def needs_tokens(self) -> bool:
        """Callers need no token on loopback and need one on any other address, unless the settings say otherwise."""
        return self.require_tokens or not (self.on_loopback or self.insecure)

    def prepare_directories(self) -> None:
        """Create the data directory, or take other users' access to it away.

        Checkpoints that are in it keep their modes: they may be large, and no other user reaches them there. Raises
        BadSettings if the data directory cannot be created or written.
        """
        for directory in (self.data_dir, self.packages_dir, self.logs_dir):
            try:
                private_files.restrict_all(directory, leave=Path(self.storage))
                private_files.create_directory(directory)
                probe = directory / f"{PROBE_PREFIX}{secrets.token_hex(8)}"
                probe.touch()
                probe.unlink()
                self.lease_key()
            except OSError as error:
                remedy = private_files.remedy_or(error, "set PACELINE_DATA_DIR to another directory")
                raise BadSettings(
                    f"the data directory {directory} cannot be written ({error.strerror}); {remedy}"
                ) from error

    def lease_key(self) -> bytes:
        """Return the key for lease tokens, which all service processes share; create it, if it does not exist."""
        return private_files.write_once(self.data_dir / LEASE_KEY_FILE, secrets.token_bytes(LEASE_KEY_BYTES))


def without_password(text: str) -> str:
    """A URL, or a text with URLs in it, without users, passwords and tokens, so that it may be shown."""
    return re.sub(rf"({HIDDEN_PARAMETER})=[^&\s]+", rf"\1={MASK}", without_users(text, "//"))


def without_credentials(text: str) -> str:
    """As `without_password`, and without the values of all other parameters in the queries of URLs.

    For the address of an MLflow server: what the proxy before it calls its credentials is not known.
    """
    return re.sub(r"([?&][^=?&\s]+)=[^&\s]+", rf"\1={MASK}", without_users(text, "//"))


def _hosts(text: str) -> tuple[HostPattern, ...]:
    try:
        return tuple(HostPattern.parse(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise BadSettings(
            f"PACELINE_HOSTS must be hosts with commas between them, such as paceline.example,*.lab.example: {error}"
        ) from error


def sqlite_url(file: Path) -> str:
    """The file's URL. What has a meaning in a URL, such as `?` and `%20`, is encoded."""
    from sqlalchemy.engine import URL  # noqa: PLC0415 - the commands that call the API start without it

    return URL.create("sqlite", database=str(file)).render_as_string()


def _database_url(url: str) -> str:
    if not DATABASES.fullmatch(url):
        scheme, mark, _ = url.partition("://")
        given = f"not as {scheme}://…" if mark else "and has no scheme"  # the rest may hold a password
        raise BadSettings(
            "PACELINE_DATABASE_URL must be sqlite:///, followed by a path, or as postgresql+psycopg://user@host:5432/name"
            f", {given}"
        )
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - the commands that call the API start without it
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        is_readable = 0 < (make_url(url).port or MAX_PORT) <= MAX_PORT
    except (ArgumentError, ValueError):
        is_readable = False  # the error may hold the password
    if not is_readable:
        raise BadSettings(
            "PACELINE_DATABASE_URL cannot be read; it must be as postgresql+psycopg://user@host:5432/name"
        )
    return url


def storage_location(text: str) -> str:
    """A directory as an absolute path, since the agents and workers have other working directories; or a URI.

    Raises BadSettings, without the credentials that a URI must not have.
    """
    if "://" in text:
        if not text.startswith("/") and _has_credentials(text):
            raise BadSettings(
                "PACELINE_STORAGE must have no credentials, because its URI is stored with each checkpoint and shown: "
                "set them where the service, the agents and the nodes run, for S3 as AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, for Google as GOOGLE_APPLICATION_CREDENTIALS"
            )
        return _with_retry_limit(text)
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        raise BadSettings(f"PACELINE_STORAGE must be a path, or a URI as s3://bucket/path, not as {scheme.group()}…")
    return str(expanded(Path(text)).absolute())


def _with_retry_limit(uri: str) -> str:
    """Adds a limit to a URI that has none: pyarrow would repeat a call that Google's bucket refuses for 15 minutes."""
    if re.match("gc?s://", uri) is None or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={GCS_RETRY_SECONDS}"


def _has_credentials(uri: str) -> bool:
    """Whether it has a password, as pyarrow takes one. A secret may also have a `/`, which ends its URI early."""
    authority = re.split(r"[/?]", uri.partition("://")[2], maxsplit=1)[0]
    user, _, server = authority.rpartition("@")
    port = "" if uri.partition(":")[0] in ("s3", "gs", "gcs") else r"(:\d+)?"  # those name a bucket, which has no port
    is_server = server.startswith("[") or re.fullmatch(rf"[^:]*{port}", server)
    return ":" in user or not is_server or SECRETS_IN_QUERY.search(uri) is not None


def expanded(path: Path) -> Path:
    """The path with a home directory in place of `~`; unchanged if that home directory is not known."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _advertised_url(text: str) -> str | None:
    url = text.strip().rstrip("/")
    if url and not re.fullmatch(r"https?://[^\s,/]+(/[^\s,]*)?", url):
        raise BadSettings(f"PACELINE_ADVERTISED_URL must be one URL, such as http://10.0.0.5:8000, not {text!r}")
    return url or None


def switch(env: Mapping[str, str], name: str) -> bool:
    """Whether it is on. Raises BadSettings: misspelled, it must not leave a service open to callers without tokens."""
    text = env.get(name, "").strip().lower()
    if text not in (*ON, *OFF):
        raise BadSettings(f"{name} must be 1 or 0 (or true, yes, on, false, no, off), not {env[name]!r}")
    return text in ON


def _number(env: Mapping[str, str], name: str, default: float, most: float = math.inf) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise BadSettings(f"{name} must be a number, not {text!r}") from error
    if not math.isfinite(value):
        raise BadSettings(f"{name} must be a number, not {text!r}")
    if value < 0:
        raise BadSettings(f"{name} must not be negative, not {text}")
    if value > most:
        raise BadSettings(f"{name} must be at most {most}, not {text}")
    return value


def _whole(env: Mapping[str, str], name: str, default: int, most: int) -> int:
    value = float(_number(env, name, default))
    if value > most or not value.is_integer():
        raise BadSettings(f"{name} must be a whole number up to {most}, not {env[name]!r}")
    return int(value)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    return _number(env, name, default, most=MOST_SECONDS)


def _days(env: Mapping[str, str], name: str, default: float) -> float:
    return _number(env, name, default, most=MOST_DAYS)


def _count(env: Mapping[str, str], name: str, default: int, most: int) -> int:
    return int(_more_than_0(name, _whole(env, name, default, most), "nothing would be let in"))


def _time_limit(env: Mapping[str, str], name: str, default: float) -> float:
    return _more_than_0(name, _seconds(env, name, default), "nothing would be done in time")


def _lease_seconds(env: Mapping[str, str], default: float) -> float:
    name = "PACELINE_LEASE_SECONDS"
    return _more_than_0(name, _seconds(env, name, default), "a lease that ends at once ends every attempt")


def _more_than_0(name: str, value: float, why: str) -> float:
    if value == 0:
        raise BadSettings(f"{name} must be more than 0: {why}")
    return value
