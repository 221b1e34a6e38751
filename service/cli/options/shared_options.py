"""Options and arguments that several commands share."""

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
import typer

from service.cli.client.client import Client
from service.cli.options.trial_reference import check_trial
from service.settings import expanded, without_password
from service.stack.ports import MAX_PORT, accepts

LOCAL_URL = "http://127.0.0.1:8000"
DEFAULT_DATA_DIR = Path("paceline-data")


def _checked(url: str) -> str:
    """Raises typer.BadParameter for what no client can call, without a password in it."""
    for address in addresses_in(url) or [url]:
        if not _is_address(address):
            shown = without_password(address)
            hint = "" if shown == address else "; a password needs its special characters percent-encoded"
            raise typer.BadParameter(f"{shown!r} is not an address such as {LOCAL_URL}{hint}")
    return url


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="PACELINE_URL",
        help="The service's address, or several with commas between them.",
        callback=_checked,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Experiment = Annotated[str, typer.Argument(help="An experiment's name or id.")]
Trial = Annotated[
    str,
    typer.Argument(help="A trial's id (t-…) or NAME#NUMBER; `paceline show NAME` lists them.", callback=check_trial),
]
DataDir = Annotated[
    Path,
    typer.Option(
        envvar="PACELINE_DATA_DIR", help="Directory of the database, logs and checkpoints.", callback=expanded
    ),
]
Port = Annotated[
    int, typer.Option(envvar="PACELINE_PORT", min=0, max=MAX_PORT, help="Port of the HTTP API; 0 picks a free one.")
]
MlflowPort = Annotated[
    int,
    typer.Option(
        envvar="PACELINE_MLFLOW_PORT", min=0, max=MAX_PORT, help="Port of the MLflow server; 0 picks a free one."
    ),
]


def access_token() -> str | None:
    """Raises typer.BadParameter for a token that no header can have, without showing it."""
    token = os.environ.get("PACELINE_TOKEN", "").strip()
    if not all("!" <= character <= "~" for character in token):
        raise typer.BadParameter("PACELINE_TOKEN has a space, a line break or a character that is not ASCII within it")
    return token or None


def connect(url: str) -> Client:
    """Connects to the first of several addresses that accepts connections."""
    addresses = addresses_in(url)
    chosen = next((one for one in addresses if len(addresses) > 1 and _accepts(one)), addresses[0])
    return Client(chosen, access_token())


def addresses_in(url: str) -> list[str]:
    return [one.strip() for one in url.split(",") if one.strip()]


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and _is_host(httpx.URL(url)) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        return False


def _is_host(url: httpx.URL) -> bool:
    """Raises UnicodeError for what no name server can be asked for, such as a label of more than 63 characters."""
    return bool(url.host and url.raw_host.decode().encode("idna"))


def _accepts(url: str) -> bool:
    parts = urlsplit(url)
    return accepts(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
