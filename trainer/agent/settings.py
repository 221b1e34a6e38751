"""The settings of an agent that are environment variables; docs/reference/settings.md describes them."""

import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path


class BadSetting(ValueError):
    """A variable with a value that an agent cannot work with."""


def state_directory(env: Mapping[str, str]) -> Path | None:
    """The directory of the liveness lock; the agent has no other data. None if the home is not known.

    A `~` of a user who is not known stays as it is.
    """
    configured = env.get("PACELINE_DATA_DIR")
    try:
        return Path(configured).expanduser() if configured else Path.home() / ".local" / "state" / "paceline"
    except RuntimeError:
        return Path(configured) if configured else None


def prestarted_workers(env: Mapping[str, str]) -> int:
    """How many idle worker processes are kept on each node; with 0 there are also no fork servers.

    By itself: one worker group on a small machine, and one of eight workers on any other, with what Ray starts beside
    them. Raises BadSetting.
    """
    configured = env.get("PACELINE_PRESTARTED_WORKERS") or "auto"
    if configured == "auto":
        return max(4, min(8, os.cpu_count() or 1) + 2)
    if not configured.isdecimal():
        raise BadSetting(
            f"PACELINE_PRESTARTED_WORKERS is {configured!r}; it has to be a whole number, such as 4, or auto"
        )
    return int(configured)


def preloaded_modules(env: Mapping[str, str]) -> tuple[str, ...]:
    """The modules that fork servers import beside torch, Ray Train and scikit-learn. Raises BadSetting."""
    configured = env.get("PACELINE_PRELOADED_MODULES", "")
    names = tuple(name for entry in configured.split(",") if (name := entry.strip()))
    if wrong := [name for name in names if not all(part.isidentifier() for part in name.split("."))]:
        raise BadSetting(
            f"PACELINE_PRELOADED_MODULES names {', '.join(map(repr, wrong))}; it has to list Python modules with "
            "commas between them, such as transformers,lightning.pytorch"
        )
    return names


def trusted_certificates(env: Mapping[str, str], service_urls: Iterable[str]) -> str | None:
    """What SSL_CERT_FILE names, as text: nodes of the cluster need not have the file. None where it is not needed.

    Raises BadSetting.
    """
    path = env.get("SSL_CERT_FILE")
    if not path or not any(url.strip().startswith("https:") for url in service_urls):
        return None
    try:
        certificates = Path(path).read_text(encoding="ascii", errors="ignore")  # there may be comments in it
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (OSError, ValueError) as error:
        raise BadSetting(f"SSL_CERT_FILE is {path!r}, in which there are no certificates (PEM): {error}") from error
    return certificates
