"""The snapshot of openapi.json in docs/reference, and which changes of it break a client of version 1.

    python -m tests.architecture.openapi_snapshot

writes the snapshot. It refuses a change that breaks clients, unless the first number of `API_VERSION` is raised.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from service.app.application import create_app
from service.settings import Settings

_PATH = "docs/reference/openapi.json"
SNAPSHOT = Path(__file__).parents[2] / _PATH
UPDATE = ".venv/bin/python -m tests.architecture.openapi_snapshot"

_NARROWING_MINIMA = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_NARROWING_MAXIMA = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")

Json = Any


def current() -> Json:
    with TemporaryDirectory() as directory:
        return create_app(Settings.from_env({"PACELINE_DATA_DIR": directory})).openapi()


def as_text(document: Json) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def breaking_changes(before: Json, after: Json) -> list[str]:
    """What a client that was written for `before` may miss or get refused in `after`; empty after a new version."""
    if before["info"]["version"].partition(".")[0] != after["info"]["version"].partition(".")[0]:
        return []
    return list(_Comparison(before, after).changes())


class _Comparison:
    """Compares two documents. A schema that requests use may only be widened, one that answers use only be narrowed.

    Except for enumerations in answers, which may get new values, such as another kind of trainer.
    """

    def __init__(self, before: Json, after: Json) -> None:
        self._before, self._after = before, after
        self._compared: set[tuple[str, bool]] = set()

    def changes(self) -> Iterator[str]:
        for path, methods in self._before["paths"].items():
            for method, operation in methods.items():
                where = f"{method.upper()} {path}"
                now = self._after["paths"].get(path, {}).get(method)
                yield from [f"{where} is gone"] if now is None else self._operation(where, operation, now)

    def _operation(self, where: str, before: Json, after: Json) -> Iterator[str]:
        if before["operationId"] != after["operationId"]:
            yield f"{where} has another operationId, {after['operationId']}"
        yield from self._parameters(where, before.get("parameters", []), after.get("parameters", []))
        yield from self._request(where, before.get("requestBody"), after.get("requestBody"))
        for status, answer in before["responses"].items():
            if status not in after["responses"]:
                yield f"{where}: the status {status} is gone"
                continue
            now = after["responses"][status].get("content", {})
            yield from self._contents(f"{where}: {status}", answer.get("content", {}), now, answers=True)

    def _parameters(self, where: str, before: Json, after: Json) -> Iterator[str]:
        then = {(one["in"], one["name"]): one for one in before}
        now = {(one["in"], one["name"]): one for one in after}
        for key, one in then.items():
            if key not in now:
                yield f"{where}: the parameter {key[1]} is gone"
            else:
                yield from self._schema(f"{where}: {key[1]}", one["schema"], now[key]["schema"], answers=False)
        for key, one in now.items():
            if one.get("required") and not then.get(key, {}).get("required"):
                yield f"{where}: the parameter {key[1]} is required now"

    def _request(self, where: str, before: Json, after: Json) -> Iterator[str]:
        if after and after.get("required") and not (before or {}).get("required"):
            yield f"{where}: the body is required now"
        if before:
            now = (after or {}).get("content", {})
            yield from self._contents(f"{where}: the body", before["content"], now, answers=False)

    def _contents(self, where: str, before: Json, after: Json, *, answers: bool) -> Iterator[str]:
        for kind, content in before.items():
            if kind not in after:
                yield f"{where}: {kind} is gone"
            elif "schema" in content:
                yield from self._schema(where, content["schema"], after[kind].get("schema", {}), answers=answers)

    def _schema(self, where: str, before: Json, after: Json, *, answers: bool) -> Iterator[str]:
        if "$ref" in before and before.get("$ref") == after.get("$ref"):
            name = before["$ref"].rpartition("/")[2]
            if (name, answers) not in self._compared:
                self._compared.add((name, answers))
                then, now = (one["components"]["schemas"][name] for one in (self._before, self._after))
                yield from self._schema(name, then, now, answers=answers)
            return
        wider, narrower = (after, before) if not answers else (before, after)
        if answers:
            wider = {name: value for name, value in wider.items() if name != "enum"}
        yield from (f"{where}: {what}" for what in _narrowed(narrower, wider))
        yield from self._members(where, before, after, answers=answers)
        for key in ("items", "additionalProperties"):
            if isinstance(before.get(key), dict) and isinstance(after.get(key), dict):
                yield from self._schema(f"{where}[]", before[key], after[key], answers=answers)
        for then, now in zip(before.get("anyOf", []), after.get("anyOf", []), strict=False):
            yield from self._schema(where, then, now, answers=answers)

    def _members(self, where: str, before: Json, after: Json, *, answers: bool) -> Iterator[str]:
        then, now = before.get("properties", {}), after.get("properties", {})
        for name, schema in then.items():
            if name not in now:
                yield f"{where}.{name} is gone"
            else:
                yield from self._schema(f"{where}.{name}", schema, now[name], answers=answers)
        required = set(before.get("required", [])), set(after.get("required", []))
        if answers:
            yield from (f"{where}.{name} may be absent now" for name in sorted(required[0] - required[1]))
        else:
            yield from (f"{where}.{name} is required now" for name in sorted(required[1] - required[0]))


def _narrowed(small: Json, large: Json) -> Iterator[str]:
    """How `large` has not all values of `small`. Where it cannot be said, nothing is said."""
    if "$ref" in small or "$ref" in large:
        if small.get("$ref") != large.get("$ref") and "anyOf" not in large:
            yield "its schema is another one"
        return
    if not _kinds(small) <= _kinds(large):
        yield f"its type was {'/'.join(sorted(_kinds(large)))} on one side and is {'/'.join(sorted(_kinds(small)))}"
    if "enum" in large and not set(small.get("enum", [None])) <= set(large["enum"]):
        yield "its values differ"
    for name, worse in [(one, 1) for one in _NARROWING_MINIMA] + [(one, -1) for one in _NARROWING_MAXIMA]:
        if name in large and (name not in small or (large[name] - small[name]) * worse > 0):
            yield f"its {name} differs"
    if "pattern" in large and small.get("pattern") != large["pattern"]:
        yield "its pattern differs"


def _kinds(schema: Json) -> set[str]:
    """The JSON types that it admits; each reference is a kind of its own."""
    if "anyOf" in schema:
        return {kind for one in schema["anyOf"] for kind in _kinds(one)}
    if "$ref" in schema:
        return {schema["$ref"].rpartition("/")[2]}
    kinds = schema.get("type", "any value")
    found = set([kinds] if isinstance(kinds, str) else kinds)
    return found | ({"integer"} if "number" in found else set())


def main() -> int:
    after = current()
    if SNAPSHOT.exists() and (broken := breaking_changes(json.loads(SNAPSHOT.read_text()), after)):
        print("These changes break clients; raise the first number of API_VERSION:", *broken, sep="\n  ")  # noqa: T201
        print(f"If they concern only what you have not committed, first run: git checkout {_PATH}")  # noqa: T201
        return 1
    SNAPSHOT.write_text(as_text(after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
