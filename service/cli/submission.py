"""Submitting an experiment: the spec's file, its name, and the code in its folder."""

import json
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.cli.client.answers import Refused
from service.cli.client.client import Client
from service.cli.code_archive import (
    Code,
    files_from_elsewhere,
    folder_with_file,
    folder_with_module,
    largest_files,
    linked_folders,
    packed,
)
from service.errors import ServiceError
from service.specification.merge_patch import changed_document

TOO_LARGE = 413
UNIQUE_TRIES = 20
"""How many free names `--unique` tries: other submissions may take each before it is sent."""
_SCRIPT = re.compile(r"[\w.-][\w./-]*\.(py|sh)")


@dataclass(frozen=True)
class Changes:
    """What a submission changes of the spec in the file.

    `patch`: a merge patch; `name`: another name; `makes_unique`: -2, -3, … is added to a name that is taken.
    """

    patch: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    makes_unique: bool = False

    def of(self, client: Client, spec: dict[str, Any]) -> dict[str, Any]:
        changed = changed_document(spec, self.patch)
        if self.name is not None:
            changed["name"] = self.name
        if self.makes_unique and isinstance(changed.get("name"), str):
            changed["name"] = unused_name(client, changed["name"])
        return changed


UNCHANGED = Changes()


def submit(client: Client, spec_file: Path, code: Path | None = None, changes: Changes = UNCHANGED) -> dict[str, Any]:
    """Send the spec of the file with the changes, and `code` or else the spec's folder.

    The service checks the spec. What is left out of the code, or comes from elsewhere, is among the warnings. Raises
    CannotPack, and Refused with hints for what the user can correct here.
    """
    content = spec_file.read_bytes()  # once: it may be a pipe
    spec = _parsed(content)
    patched = changed_document(spec, changes.patch) if spec else spec
    code = code or _code_beside(patched, spec_file)
    warnings = _links_in(code) if code else _why_no_code(patched, spec_file)
    try:
        with packed(code) if code else nullcontext() as sent:
            created = _sent(client, content, spec, sent, changes)
    except Refused as refused:
        refused.hints += _hints(client, refused, spec_file, code) + warnings
        raise
    created.setdefault("warnings", []).extend({"path": "code", "message": message} for message in warnings)
    return created


def _sent(client: Client, content: bytes, spec: dict[str, Any], code: Code | None, changes: Changes) -> dict[str, Any]:
    for tries_left in reversed(range(UNIQUE_TRIES)):
        is_changed = spec and changes != UNCHANGED
        sent = json.dumps(changes.of(client, spec)).encode() if is_changed else content
        try:
            return client.submit(sent, code)
        except Refused as refused:
            if not (changes.makes_unique and refused.type == "name-taken" and tries_left):
                raise
    raise AssertionError("the last try returns or raises")


def unused_name(client: Client, name: str) -> str:
    """Return the name, or the name with -2, -3, … where an experiment has it already."""
    taken = {experiment["name"] for experiment in client.experiments()}
    names = [name, *(f"{name}-{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


def preview_document(spec_file: Path, count: int) -> bytes:
    """Return the spec with the number of configurations to draw."""
    content = spec_file.read_bytes()
    spec = _parsed(content)
    return json.dumps(spec | {"n": count}).encode() if spec else content


def _parsed(content: bytes) -> dict[str, Any]:
    """Return {} for a file that cannot be parsed: it is sent as it is, and the service explains what is wrong."""
    from service.specification.documents import read_document  # noqa: PLC0415 - imports the models of the wire

    try:
        spec = read_document(content, is_json=False)
    except ServiceError:
        return {}
    return spec if isinstance(spec, dict) else {}


def _code_beside(spec: dict[str, Any], spec_file: Path) -> Path | None:
    trainer = spec.get("trainer")
    if not isinstance(trainer, dict) or trainer.get("package"):
        return None
    if isinstance(command := trainer.get("command"), list):
        return folder_with_file(spec_file, [str(argument) for argument in command])
    return folder_with_module(spec_file, str(trainer.get("entrypoint", "")))


def _links_in(code: Path) -> list[str]:
    not_sent = [f"{name} is a link to a folder and was not sent" for name in linked_folders(code)]
    elsewhere = files_from_elsewhere(code).items()
    return not_sent + [f"{name} is a link to {target}, whose content was sent" for name, target in elsewhere]


def _why_no_code(spec: dict[str, Any], spec_file: Path) -> list[str]:
    """A function or a script may be installed on the cluster, or its name may be misspelled. Empty if none is named."""
    trainer = spec.get("trainer")
    if not isinstance(trainer, dict) or trainer.get("package") or trainer.get("kind") == "external":
        return []
    folder = spec_file.parent.resolve()
    if isinstance(command := trainer.get("command"), list):
        scripts = [word for word in map(str, command) if _SCRIPT.fullmatch(word)]
        return [f"no code is sent: {folder} has no {script!r}; it must be on the cluster" for script in scripts[:1]]
    module = str(trainer.get("entrypoint") or "").partition(":")[0]
    missing = f"no code is sent: {folder} has no module {module!r}; it must be importable on the cluster"
    return [missing] if module else []


def _hints(client: Client, refused: Refused, spec_file: Path, code: Path | None) -> list[str]:
    if refused.type == "name-taken" and (taken := refused.problem.get("name")):
        free = unused_name(client, taken)
        return [
            f"to submit it under another name: paceline submit {spec_file} --name {free}, or --unique for a free one",
            f"to delete the earlier one, once it has ended: paceline delete {taken}",
        ]
    if refused.status == TOO_LARGE and code and code.is_dir():
        return [f"the largest files in {code}: {largest_files(code)}. Choose what to send: --code PATH"]
    return []
