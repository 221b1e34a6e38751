"""Submits an experiment as a user does: its code first, then the specification, with an Idempotency-Key."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.cli.code_archive import packed
from tests.chaos.service_caller import ServiceCaller

USER_CODE = Path(__file__).parent / "user_code"


def submit(services: ServiceCaller, spec: Mapping[str, Any]) -> str:
    """Return the experiment's id. Raise HTTPStatusError for what is refused, TimeoutError when no service answers."""
    key = {"Idempotency-Key": uuid.uuid4().hex}
    created = services.call("POST", "/v1/experiments", json=_with_code(services, spec), headers=key)
    return str(created.raise_for_status().json()["id"])


def _with_code(services: ServiceCaller, spec: Mapping[str, Any]) -> dict[str, Any]:
    if spec["trainer"].get("kind") == "external":
        return dict(spec)
    with packed(USER_CODE) as code:
        content = code.content.read()
    package = services.call("POST", "/v1/packages", params={"filename": code.filename}, content=content)
    return {**spec, "trainer": {**spec["trainer"], "package": package.raise_for_status().json()["id"]}}
