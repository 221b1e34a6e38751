"""From a spec's file and the code beside it to a running experiment."""

from pathlib import Path
from typing import Any

import yaml

from service.cli.client import Client
from service.cli.code_archive import Code, beside, pack


def submit(client: Client, spec_file: Path, code: Path | None, name: str | None) -> dict[str, Any]:
    """Send what the file says, with another name if one is given; mistakes are the service's to find."""
    content = spec_file.read_bytes()
    spec = _parsed(content)
    if name:
        content = yaml.safe_dump(spec | {"name": name}, sort_keys=False).encode()
    return client.submit(content, _code(spec, spec_file, code))


def _parsed(content: bytes) -> dict[str, Any]:
    """Return nothing for what cannot be read: it is sent all the same, and the service says what is wrong."""
    try:
        spec = yaml.safe_load(content)
    except yaml.YAMLError:
        return {}
    return spec if isinstance(spec, dict) else {}


def _code(spec: dict[str, Any], spec_file: Path, code: Path | None) -> Code | None:
    if code is not None:
        return pack(code)
    trainer = spec.get("trainer")
    trainer = trainer if isinstance(trainer, dict) else {}
    folder = beside(spec_file, str(trainer.get("entrypoint", "")))
    return pack(folder) if folder and not trainer.get("package") else None
