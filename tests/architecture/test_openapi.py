"""openapi.json is complete, is what its snapshot in docs/reference says, and only grows within version 1."""

import copy
import difflib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from search.early_stopping.rules.wrappable_rules import PLUGINS
from search.samplers.registry import sampler_plugins
from service.api.openapi.examples import BODIES
from tests.architecture.openapi_snapshot import SNAPSHOT, UPDATE, as_text, breaking_changes, current

Json = Any
VERBS = {
    "ask", "cancel", "change", "claim", "create", "delete", "enqueue", "finish", "get", "list", "pause", "pin",
    "preview", "release", "replay", "resume", "retry", "send", "stop", "unpin",
}  # fmt: skip


@cache
def document() -> Json:
    return current()


def operations() -> Iterator[tuple[str, Json]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


of_the_service_alone = pytest.mark.skipif(
    bool(sampler_plugins().kinds or PLUGINS.kinds), reason="the document also has what installed packages bring"
)


@of_the_service_alone
def test_the_document_is_that_of_the_snapshot() -> None:
    then, now = SNAPSHOT.read_text(), as_text(document())
    changes = difflib.unified_diff(then.splitlines(), now.splitlines(), "snapshot", "now", lineterm="", n=2)
    shown = "\n".join(list(changes)[:200])
    assert then == now, f"openapi.json has changed; if that is right, run `{UPDATE}` and commit its snapshot:\n{shown}"


@of_the_service_alone
def test_the_document_only_adds_to_the_snapshot() -> None:
    broken = breaking_changes(json.loads(SNAPSHOT.read_text()), document())
    assert not broken, "\n".join(["these changes break clients of this version:", *broken])


def test_every_reference_leads_somewhere() -> None:
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', as_text(document()))):
        found: Json = {"#": document()}
        for part in reference.split("/"):
            assert part in found, reference
            found = found[part]


@of_the_service_alone
def test_everything_is_described() -> None:
    def undescribed(parts: Json) -> Iterator[str]:
        return (name for name, one in parts.items() if not one.get("description"))

    components = document()["components"]
    missing = [call for call, facts in operations() if not facts.get("description")]
    for call, facts in operations():
        missing += [f"{call}: {one['name']}" for one in facts.get("parameters", []) if not one.get("description")]
    missing += [*undescribed(components["schemas"]), *undescribed(components["securitySchemes"])]
    for name, schema in components["schemas"].items():
        missing += [f"{name}.{field}" for field in undescribed(schema.get("properties", {}))]
    assert not missing, "describe these, a field by a docstring below it"


def test_operation_ids_are_a_verb_and_what_it_is_done_to() -> None:
    ids = [facts["operationId"] for _, facts in operations()]
    assert len(set(ids)) == len(ids)
    assert not [one for one in ids if not re.fullmatch(rf"({'|'.join(VERBS)})(_[a-z]+)+", one)], "add the verb to VERBS"


def test_every_body_and_every_error_has_its_media_type_and_schema() -> None:
    for call, facts in operations():
        for status, answer in facts["responses"].items():
            content = answer.get("content", {})
            assert bool(content) is (status != "204"), f"{call}: {status}"
            assert all(one.get("schema") for one in content.values()), f"{call}: {status}"
            if int(status) >= 400 and call != "GET /readyz":
                assert list(content) == ["application/problem+json"], f"{call}: {status}"
        for kind, content in facts.get("requestBody", {}).get("content", {}).items():
            assert content["schema"], f"{call}: {kind}"


def test_every_call_has_the_errors_that_every_call_can_get() -> None:
    for call, facts in operations():
        statuses = set(facts["responses"])
        assert {"400", "403", "422", "500", "503"} <= statuses, call
        assert ("415" in statuses) is not call.startswith("GET"), call
        assert ("401" in statuses) is ("security" in facts), call
        assert ("413" in statuses) is ("requestBody" in facts), call
        assert ("404" in statuses) or "{" not in call or "/agents/" in call, call


def test_what_is_created_has_a_location() -> None:
    created = [facts["responses"]["201"] for _, facts in operations() if "201" in facts["responses"]]
    assert ["Location" in answer["headers"] for answer in created] == [True] * 3


def test_every_list_has_pages() -> None:
    for call, facts in operations():
        for status in ("200", "201"):
            schema = facts["responses"].get(status, {}).get("content", {}).get("application/json", {}).get("schema", {})
            assert schema.get("type") != "array", f"{call} answers an array"
            page = schema.get("$ref", "").rpartition("/")[2].startswith("Page_")
            cursors = {one["name"] for one in facts.get("parameters", [])} & {"cursor", "limit"}
            assert not page or cursors == {"cursor", "limit"}, call


def test_every_example_belongs_to_a_call_with_a_body() -> None:
    with_body = {facts["operationId"] for _, facts in operations() if "requestBody" in facts}
    assert BODIES.keys() == with_body - {"create_package"}  # its body are bytes


def removed(*path: str) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        for part in path[:-1]:
            document = document[part]
        del document[path[-1]]

    return change


def replaced(value: Json, *path: str) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = value

    return change


TRIAL = ("components", "schemas", "TrialView")
LIMITS = ("components", "schemas", "LimitsSpec")
EXPERIMENTS = ("paths", "/v1/experiments")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (removed("paths", "/v1/agents"), "GET /v1/agents is gone"),
        (removed(*EXPERIMENTS, "post", "responses", "409"), "POST /v1/experiments: the status 409 is gone"),
        (removed(*EXPERIMENTS, "post", "requestBody", "content", "application/yaml"), "application/yaml is gone"),
        (replaced("start", *EXPERIMENTS, "post", "operationId"), "has another operationId, start"),
        (replaced([], *EXPERIMENTS, "get", "parameters"), "the parameter tag is gone"),
        (removed(*TRIAL, "properties", "value"), "TrialView.value is gone"),
        (replaced([], *TRIAL, "required"), "TrialView.value may be absent now"),
        (replaced({"type": "string"}, *TRIAL, "properties", "number"), "TrialView.number: its type was"),
        (replaced({"type": ["integer", "null"]}, *TRIAL, "properties", "number"), "TrialView.number: its type"),
        (removed(*LIMITS, "properties", "max_trials"), "LimitsSpec.max_trials is gone"),
        (replaced(["max_trials"], *LIMITS, "required"), "LimitsSpec.max_trials is required now"),
        (replaced({"type": "integer", "minimum": 5}, *LIMITS, "properties", "max_trials"), "max_trials: its minimum"),
        (replaced({"type": "integer"}, *LIMITS, "properties", "max_seconds"), "LimitsSpec.max_seconds: its type"),
    ],
)  # fmt: skip
def test_a_change_that_breaks_clients_is_found(change: Callable[[Json], None], message: str) -> None:
    changed = copy.deepcopy(document())
    change(changed)
    broken = breaking_changes(document(), changed)
    assert [one for one in broken if message in one], broken
    changed["info"]["version"] = "2.0.0"
    assert not breaking_changes(document(), changed), "a new version may break clients"


@pytest.mark.parametrize(
    "change",
    [
        replaced({"get": {}}, "paths", "/v1/new"),
        replaced({"description": "new"}, *EXPERIMENTS, "post", "responses", "429"),
        replaced({"type": "string"}, *TRIAL, "properties", "new"),
        replaced({"type": "string"}, *LIMITS, "properties", "new"),
        replaced({"type": ["integer", "string"]}, *LIMITS, "properties", "parallelism"),
        replaced("other words", *TRIAL, "description"),
    ],
)
def test_a_change_that_only_adds_is_none(change: Callable[[Json], None]) -> None:
    changed = copy.deepcopy(document())
    change(changed)
    assert breaking_changes(document(), changed) == []
