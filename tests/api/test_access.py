"""Access tokens and their roles; a lease token is valid for its own trial only."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.domain.roles import Role
from service.operations.tokens import all_tokens, create_token, remove_token
from service.settings import Settings
from service.store.sql.database import Database
from tests.conftest import Api, a_spec, changed, running

Tokens = dict[Role, dict[str, str]]
CLAIM = {"request_id": "one", "nodes": [{"total": {"CPU": 4}, "free": {"CPU": 4}}]}


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database_url)
    yield database
    database.close()


@pytest.fixture
def tokens(database: Database) -> Tokens:
    made = {role: create_token(database, f"the {role}", role) for role in Role}
    return {role: {"Authorization": f"Bearer {token}"} for role, token in made.items()}


@pytest.fixture
def guarded(settings: Settings) -> Iterator[Api]:
    with running(changed(settings, require_tokens=True)) as service:
        yield service


def torch_with(package: str) -> dict[str, Any]:
    trainer = {"kind": "torch", "entrypoint": "train:train_fn", "package": package}
    return a_spec(name="guarded", trainer=trainer)


def test_every_role_may_make_its_own_calls_only(guarded: Api, tokens: Tokens) -> None:
    calls: list[tuple[str, str, Any, set[Role]]] = [
        ("GET", "/v1/experiments", None, set(Role)),
        ("GET", "/v1/agents", None, set(Role)),
        ("POST", "/v1/packages?filename=train.py", None, {Role.WRITE, Role.ADMIN}),
        ("POST", "/v1/experiments/nothing/stop", None, {Role.WRITE, Role.ADMIN}),
        ("POST", "/v1/experiments/nothing/replay", {"early_stopping": {}}, set(Role)),
        ("POST", "/v1/experiments/nothing/ask", None, {Role.WRITE, Role.ADMIN}),
        ("POST", "/v1/agents/here/claim", CLAIM, {Role.AGENT, Role.ADMIN}),
        ("POST", "/v1/agents/here/leave", {"place": "a", "pid": 1, "started": 1}, {Role.AGENT, Role.ADMIN}),
    ]
    for method, path, body, allowed in calls:
        assert guarded.http.request(method, path, json=body).status_code == 401
        for role, headers in tokens.items():
            status = guarded.http.request(method, path, json=body, headers=headers).status_code
            assert (status != 403) is (role in allowed), f"{role}: {method} {path} gave {status}"


def test_a_refusal_says_what_is_needed(guarded: Api, tokens: Tokens) -> None:
    refused = guarded.http.get("/v1/experiments")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["type"] == "unauthorized"
    assert guarded.get("/v1/experiments", 401, headers={"Authorization": "Bearer wrong"})["type"] == "unauthorized"
    problem = guarded.post("/v1/experiments", 403, json=a_spec(), headers=tokens[Role.READ])
    assert (problem["type"], problem["needed"]) == ("forbidden", "write")
    guarded.get("/healthz")


def test_a_slot_needs_only_its_lease(guarded: Api, tokens: Tokens) -> None:
    package = guarded.post(
        "/v1/packages?filename=train.py", 201, content=b"def train_fn(): ...\n", headers=tokens[Role.WRITE]
    )["id"]
    guarded.post("/v1/experiments", 201, json=torch_with(package), headers=tokens[Role.WRITE])
    assignment = guarded.post("/v1/agents/here/claim", json=CLAIM, headers=tokens[Role.AGENT])
    lease = {"Authorization": f"Bearer {assignment['lease']['token']}"}
    assert guarded.http.get(f"/v1/packages/{package}", headers=lease).content == b"def train_fn(): ...\n"
    report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 1}}]}
    guarded.post(f"/v1/trials/{assignment['trial']}/reports", json=report, headers=lease)
    guarded.get("/v1/experiments", 401, headers=lease)
    guarded.post(f"/v1/trials/{assignment['trial']}/finish", json={"outcome": "completed"}, headers=lease)
    guarded.get(f"/v1/packages/{package}", 401, headers=lease)


def test_a_removed_token_is_refused_and_tokens_are_stored_as_digests(
    guarded: Api, tokens: Tokens, database: Database
) -> None:
    token = tokens[Role.READ]["Authorization"].removeprefix("Bearer ")
    assert token not in str([vars(row) for row in all_tokens(database)])
    remove_token(database, "the read")
    guarded.get("/v1/experiments", 401, headers=tokens[Role.READ])


def test_loopback_needs_no_token(service: Api) -> None:
    service.create()


def test_tokens_are_required_beyond_loopback(settings: Settings) -> None:
    assert not changed(settings, host="127.0.0.2").needs_tokens
    assert changed(settings, host="0.0.0.0").needs_tokens
    assert not changed(settings, host="0.0.0.0", insecure=True).needs_tokens
    assert changed(settings, host="0.0.0.0", insecure=True, require_tokens=True).needs_tokens
