"""The secrets that an agent gives to the trials that it runs: from its environment, and from files that it may read."""

import errno
import fnmatch
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

NEVER_GIVEN = ("PACELINE_*", "RAY_AUTH_*")
"""Variables that no trial gets, whatever the settings say: the agent's own access to the service and to its cluster."""

MAX_BYTES = 64_000
"""The limit of one secret: an environment variable of a process may have little more."""

NO_SECRETS: Mapping[str, str] = {}


class SecretNotAvailable(Exception):
    """The agent has no such secret, or does not give it. The message names what is missing, and never a value."""


@dataclass(frozen=True)
class SecretSources:
    """`variables` are patterns of the variables that trials may ask for; `files` are directories or files."""

    agent: str
    variables: tuple[str, ...] = ("*",)
    files: tuple[Path, ...] = (Path("/run/secrets"),)

    @classmethod
    def from_env(cls, agent: str, env: Mapping[str, str] = os.environ) -> Self:
        """From PACELINE_SECRET_VARIABLES and PACELINE_SECRET_FILES. An empty list gives nothing."""
        given = cls(agent)
        variables, files = env.get("PACELINE_SECRET_VARIABLES"), env.get("PACELINE_SECRET_FILES")
        return cls(
            agent,
            given.variables if variables is None else _list(variables),
            given.files if files is None else tuple(map(Path, _list(files))),
        )

    def resolve(self, assignment: Mapping[str, Any]) -> Mapping[str, str]:
        """The secrets of the assignment's trial by the name of their variable. Raises SecretNotAvailable."""
        wanted: Mapping[str, Mapping[str, str]] = assignment["trainer"].get("secrets") or {}
        return {name: self._value(name, source) for name, source in wanted.items()}

    def _value(self, name: str, source: Mapping[str, str | None]) -> str:
        if variable := source.get("from_agent_env"):
            return _storable(name, self._from_variable(name, variable))
        if path := source.get("from_agent_file"):
            return _storable(name, self._from_file(name, path))
        raise SecretNotAvailable(f"trainer.secrets.{name} has a source that agent {self.agent!r} does not know")

    def _from_variable(self, name: str, variable: str) -> str:
        is_given = any(fnmatch.fnmatchcase(variable, pattern) for pattern in self.variables)
        if not is_given or any(fnmatch.fnmatchcase(variable.upper(), pattern) for pattern in NEVER_GIVEN):
            raise SecretNotAvailable(
                f"agent {self.agent!r} does not give its environment variable {variable} to trials, which "
                f"trainer.secrets.{name} asks for; its setting PACELINE_SECRET_VARIABLES says which it gives "
                f"(never {' and '.join(NEVER_GIVEN)})"
            )
        value = os.environ.get(variable)
        if not value:
            raise SecretNotAvailable(
                f"agent {self.agent!r} has no environment variable {variable}, or an empty one, which "
                f"trainer.secrets.{name} asks for; set it where the agent runs, and start the agent again"
            )
        return value

    def _from_file(self, name: str, path: str) -> str:
        """The file's text without the line break at its end, which editors add."""
        file = Path(os.path.realpath(path))
        allowed = [Path(os.path.realpath(one)) for one in self.files]
        if not any(file == one or file.is_relative_to(one) for one in allowed) or file.is_relative_to("/proc"):
            raise SecretNotAvailable(
                f"agent {self.agent!r} does not give the file {path} to trials, which trainer.secrets.{name} asks for; "
                f"its setting PACELINE_SECRET_FILES says which it gives"
            )
        try:
            if not file.is_file():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            with file.open("rb") as opened:
                content = _decoded(opened.read(MAX_BYTES + 1))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SecretNotAvailable(
                f"agent {self.agent!r} cannot read the file {path}, which trainer.secrets.{name} asks for: {why}"
            ) from None
        return content.removesuffix("\n").removesuffix("\r")


def _decoded(content: bytes) -> str:
    """Raises UnicodeDecodeError. A longer content, which is refused for its length, may end within a character."""
    return content.decode(errors="ignore" if len(content) > MAX_BYTES else "strict")


def _storable(name: str, value: str) -> str:
    try:
        is_storable = value and "\0" not in value and len(value.encode()) <= MAX_BYTES
    except UnicodeEncodeError:  # a variable of bytes that are no text
        is_storable = False
    if not is_storable:
        raise SecretNotAvailable(
            f"the value for trainer.secrets.{name} is empty, is not UTF-8 text, has a NUL character, or has more than "
            f"{MAX_BYTES} bytes, so it cannot be an environment variable"
        )
    return value


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
