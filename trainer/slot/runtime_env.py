"""Ray's runtime environment for the workers of a trial."""

from collections.abc import Mapping, Sequence
from typing import Any

INSTALLERS = ("pip", "uv")


def runtime_env_of(asked_for: Mapping[str, Any] | None, requirements: Sequence[str]) -> dict[str, Any]:
    """`asked_for` is `trainer.wire.RuntimeEnv` as JSON; `requirements` are those of the package."""
    fields = {name: value for name, value in (asked_for or {}).items() if value}
    for name in INSTALLERS:
        if name in fields:
            fields[name] = _installed(fields[name], requirements)
    return fields


def _installed(installer: Mapping[str, Any], requirements: Sequence[str]) -> dict[str, Any]:
    """As Ray takes it: without what is not set."""
    packages = [*installer["packages"], *(requirements if installer["from_package"] else ())]
    options = {name: value for name, value in installer.items() if name != "from_package" and value is not None}
    return {**options, "packages": packages}
