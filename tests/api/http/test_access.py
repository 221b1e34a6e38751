"""Access tokens and their roles; a lease token is valid for its own trial only."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import select, text

from service.background import token_use
from service.background.token_upkeep import TokenUpkeep
from service.domain.roles import Role
from service.domain.token_digest import token_digest
from service.operations.tokens import all_tokens, create_token, remove_token, rotate_token
from service.runtime.computation.threads import BRIEF
from service.runtime.context import Context
from service.runtime.events.notifier import KeyedNotifier
from service.runtime.token_use import TokenUse
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import Base, TokenRow
from tests.conftest import Api, a_spec, changed, running
from tests.timeouts import wait_until
from trainer.wire import Answer

pytestmark = pytest.mark.slow

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
    return {role: bearer(token) for role, token in made.items()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(settings: Settings) -> Iterator[Api]:
    with running(changed(settings, require_tokens=True)) as service:
        yield service


def torch_with(package: str) -> dict[str, Any]:
    trainer = {"kind": "torch", "entrypoint": "train:train_fn", "package": package}
    return a_spec(name="guarded", trainer=trainer)


@pytest.mark.databases("sqlite")
def test_tokens_are_checked_while_heartbeats_wait(
    guarded: Api, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, released = threading.Semaphore(0), threading.Event()

    def take_heartbeat(*_: object) -> Answer:
        waiting.release()
        released.wait()
        return Answer()

    monkeypatch.setattr("service.api.attempts.holder_calls.take_heartbeat", take_heartbeat)
    experiment = guarded.post("/v1/experiments", 201, headers=tokens[Role.WRITE], json=a_spec())["id"]
    held = guarded.post(f"/v1/experiments/{experiment}/ask", headers=tokens[Role.WRITE])
    with ThreadPoolExecutor(BRIEF) as callers:
        lease = bearer(held["lease"]["token"])
        beats = [
            callers.submit(guarded.post, f"/v1/trials/{held['trial']}/heartbeat", headers=lease, json={})
            for _ in range(BRIEF)
        ]
        for _ in beats:
            waiting.acquire()
        try:
            checked = guarded.http.get("/v1/experiments", headers=tokens[Role.READ])
        finally:
            released.set()
    assert checked.status_code == 200
    assert all(beat.result()["decision"] == "continue" for beat in beats)


def test_every_role_may_make_its_own_calls_only(guarded: Api, tokens: Tokens) -> None:
    calls: list[tuple[str, str, Any, set[Role]]] = [
        ("GET", "/v1/experiments", None, set(Role)),
        ("GET", "/v1/agents", None, set(Role)),
        ("POST", "/v1/packages?filename=train.py", None, {Role.WRITE, Role.ADMIN}),
        ("POST", "/v1/experiments/nothing/stop", None, {Role.WRITE, Role.ADMIN}),
        ("POST", "/v1/experiments/nothing/replay", {"early_stopping": {}}, set(Role)),
        ("PUT", "/v1/trials/nothing/checkpoints/1/pin", None, {Role.WRITE, Role.ADMIN}),
        ("DELETE", "/v1/trials/nothing/checkpoints/1/pin", None, {Role.WRITE, Role.ADMIN}),
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
    assert refused.json()["type"] == "urn:paceline:error:unauthorized"
    assert (
        guarded.get("/v1/experiments", 401, headers={"Authorization": "Bearer wrong"})["type"]
        == "urn:paceline:error:unauthorized"
    )
    problem = guarded.post("/v1/experiments", 403, json=a_spec(), headers=tokens[Role.READ])
    assert (problem["type"], problem["needed"]) == ("urn:paceline:error:forbidden", "write")
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


def test_lease_tokens_are_stored_as_digests(service: Api, database: Database) -> None:
    experiment = service.create()
    first = service.ask(experiment["name"], key="mine")
    again = service.ask(experiment["name"], key="mine")
    assert first
    assert again
    assert first.assignment["lease"]["token"] == again.assignment["lease"]["token"]
    following = first.finish(next=True)["next"]
    tokens = {held["lease"]["token"] for held in (first.assignment, following)}
    assert len(tokens) == 2
    with database.read() as session:
        tables = [session.execute(select(table)).all() for table in Base.metadata.sorted_tables]
    assert not [token for token in tokens if token in str(tables)]
    assert token_digest(following["lease"]["token"]) in str(tables)
    service.post(f"/v1/trials/{following['trial']}/heartbeat", 401, headers=bearer(token_digest(tokens.pop())))


def test_a_claim_is_repeated_after_a_restart_with_the_same_token(settings: Settings) -> None:
    with running(settings) as service:
        experiment = service.create()
        first = service.ask(experiment["name"], key="mine")
    with running(settings) as service:
        again = service.ask(experiment["name"], key="mine")
        assert first
        assert again
        assert first.assignment["lease"]["token"] == again.assignment["lease"]["token"]
        again.report(accuracy=1)


def test_a_lease_fetches_its_own_package_only(guarded: Api, tokens: Tokens) -> None:
    write = tokens[Role.WRITE]
    packages = [
        guarded.post("/v1/packages?filename=train.py", 201, content=code, headers=write)["id"]
        for code in (b"def train_fn(): ...\n", b"def train_fn(): 'another'\n")
    ]
    guarded.post("/v1/experiments", 201, json=torch_with(packages[0]), headers=write)
    assignment = guarded.post("/v1/agents/here/claim", json=CLAIM, headers=tokens[Role.AGENT])
    lease = bearer(assignment["lease"]["token"])
    assert guarded.http.get(f"/v1/packages/{packages[0]}", headers=lease).status_code == 200
    assert guarded.get(f"/v1/packages/{packages[1]}", 403, headers=lease)["type"] == "urn:paceline:error:forbidden"
    guarded.post("/v1/packages?filename=train.py", 401, content=b"x = 1\n", headers=lease)


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/docs", "/docs/swagger-ui.css"])
def test_what_the_service_says_of_itself_needs_a_token(guarded: Api, tokens: Tokens, path: str) -> None:
    assert guarded.http.get(path).status_code == 401
    assert guarded.http.get(path, headers=tokens[Role.READ]).status_code == 200
    for probe in ("/healthz", "/readyz"):
        guarded.get(probe)


def test_a_token_expires(guarded: Api, database: Database) -> None:
    headers = bearer(create_token(database, "brief", Role.READ, timedelta(hours=1)))
    guarded.get("/v1/experiments", headers=headers)
    let_pass(database, timedelta(hours=2))
    assert "`paceline token rotate brief`" in guarded.get("/v1/experiments", 401, headers=headers)["detail"]


def test_a_rotated_token_is_valid_for_the_overlap(guarded: Api, database: Database) -> None:
    first = bearer(create_token(database, "cluster", Role.READ, timedelta(days=1)))
    second = bearer(rotate_token(database, "cluster", overlap=timedelta(hours=1)))
    for headers in (first, second):
        guarded.get("/v1/experiments", headers=headers)
    let_pass(database, timedelta(hours=2))
    detail = guarded.get("/v1/experiments", 401, headers=first)["detail"]
    assert "this token of 'cluster' was replaced" in detail, "to rotate it again would end the new one"
    guarded.get("/v1/experiments", headers=second)
    third = bearer(rotate_token(database, "cluster"))
    guarded.get("/v1/experiments", 401, headers=second)
    let_pass(database, timedelta(hours=23))
    guarded.get("/v1/experiments", headers=third)
    let_pass(database, timedelta(hours=2))
    guarded.get("/v1/experiments", 401, headers=third)


def test_an_overlap_does_not_extend_the_present_token(guarded: Api, database: Database) -> None:
    first = bearer(create_token(database, "cluster", Role.READ, timedelta(hours=1)))
    second = bearer(rotate_token(database, "cluster", overlap=timedelta(days=1), lifetime=timedelta(days=1)))
    let_pass(database, timedelta(hours=2))
    guarded.get("/v1/experiments", 401, headers=first)
    guarded.get("/v1/experiments", headers=second)


def let_pass(database: Database, time: timedelta) -> None:
    """Move the tokens' times into the past: their clock is the database's."""
    with database.write() as session:
        for row in session.query(TokenRow):
            for name in ("created_at", "expires_at", "previous_expires_at"):
                at = getattr(row, name)
                setattr(row, name, at and at - time)


def test_the_last_use_of_a_token_is_stored_once_a_minute(guarded: Api, tokens: Tokens, database: Database) -> None:
    def last_use() -> datetime | None:
        return next(row.last_used_at for row in all_tokens(database) if row.name == "the read")

    assert last_use() is None
    guarded.get("/v1/experiments", 401, headers=bearer("wrong"))
    guarded.get("/v1/experiments", headers=tokens[Role.READ])
    upkeep = TokenUpkeep(guarded.app.state.context)
    upkeep.run_once()
    first = wait_until(last_use)
    guarded.get("/v1/experiments", headers=tokens[Role.READ])
    assert not guarded.app.state.context.token_use.take_unstored()
    assert last_use() == first


def test_uses_of_a_token_are_noted_again_after_a_minute() -> None:
    now = 0.0
    use = TokenUse(lambda: now)
    use.note("a")
    assert use.take_unstored() == {"a"}
    use.put_back({"a"})
    assert use.take_unstored() == {"a"}
    now = 59.0
    use.note("a")
    assert use.take_unstored() == set()
    now = 60.0
    use.note("a")
    assert use.take_unstored() == {"a"}


def test_a_use_that_cannot_be_stored_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(token_use, "store_use", fail)
    use = TokenUse()
    use.note("a")
    parts = SimpleNamespace(token_use=use, revoked_tokens=KeyedNotifier(), database=None)
    with pytest.raises(OSError, match="full"):
        TokenUpkeep(cast(Context, parts)).run_once()
    assert use.take_unstored() == {"a"}


@pytest.mark.parametrize("how", ["removed", "rotated", "expired"])
def test_a_revoked_token_ends_its_open_calls(guarded: Api, tokens: Tokens, database: Database, how: str) -> None:
    guarded.post("/v1/experiments", 201, json=a_spec(name="followed"), headers=tokens[Role.WRITE])
    trial = guarded.post("/v1/experiments/followed/ask", headers=tokens[Role.WRITE])["trial"]
    headers = bearer(create_token(database, "follower", Role.ADMIN, timedelta(hours=1)))
    stack = ExitStack()
    paths = ("/v1/experiments/followed/events", f"/v1/trials/{trial}/logs?follow=true")
    streams = [stack.enter_context(guarded.http.stream("GET", path, headers=headers)) for path in paths]
    assert [stream.status_code for stream in streams] == [200, 200]
    claim = {**CLAIM, "request_id": "two", "nodes": [], "wait_seconds": 60}
    with stack, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(guarded.post, "/v1/agents/here/claim", 401, json=claim, headers=headers)
        open_calls = guarded.app.state.context.revoked_tokens
        wait_until(lambda: sum(open_calls._subscriber_counts.values()) == 3)
        match how:
            case "removed":
                remove_token(database, "follower")
            case "rotated":
                rotate_token(database, "follower")
            case "expired":
                let_pass(database, timedelta(hours=2))
        assert "event: experiment.created" in "".join(streams[0].iter_text())
        assert list(streams[1].iter_text()) == []
        assert "removed or rotated" in waiting.result()["detail"]


@pytest.mark.databases("sqlite")
def test_a_token_that_expires_ends_its_calls_while_its_use_cannot_be_stored(guarded: Api, database: Database) -> None:
    token = create_token(database, "follower", Role.ADMIN, timedelta(hours=1))
    refused = "create trigger refused before update of last_used_at on tokens begin select raise(abort, 'no'); end"
    with database.write() as session:
        session.execute(text(refused))
    guarded.post("/v1/experiments", 201, json=a_spec(name="followed"), headers=bearer(token))
    with guarded.http.stream("GET", "/v1/experiments/followed/events", headers=bearer(token)) as stream:
        wait_until(lambda: guarded.get("/readyz")["loops"]["token upkeep"]["error"])
        let_pass(database, timedelta(hours=2))
        assert "event: experiment.created" in "".join(stream.iter_text())


def test_a_revoked_token_cuts_its_download_off(guarded: Api, tokens: Tokens, database: Database) -> None:
    guarded.post("/v1/experiments", 201, json=a_spec(name="downloaded"), headers=tokens[Role.WRITE])
    held = guarded.post("/v1/experiments/downloaded/ask", headers=tokens[Role.WRITE])
    context = guarded.app.state.context
    folder = Path(context.settings.storage, held["run_name"], "checkpoint_1")
    folder.mkdir(parents=True)
    with (folder / "weights").open("wb") as file:
        file.truncate(500_000_000)  # more than the buffers of a connection that does not read
    report = {"reports": [{"sequence": 0, "metrics": {"accuracy": 0.5}, "checkpoint": str(folder)}]}
    guarded.post(f"/v1/trials/{held['trial']}/reports", json=report, headers=bearer(held["lease"]["token"]))
    headers = bearer(create_token(database, "reader", Role.READ))
    path = f"/v1/trials/{held['trial']}/checkpoints/1/archive"
    with guarded.http.stream("GET", path, headers=headers) as download:
        assert download.status_code == 200
        remove_token(database, "reader")
        pieces = download.iter_raw()
        assert next(pieces)
        wait_until(lambda: not context.downloads.count)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)


def test_loopback_needs_no_token(service: Api) -> None:
    service.create()


def test_tokens_are_required_beyond_loopback(settings: Settings) -> None:
    assert not changed(settings, host="127.0.0.2").needs_tokens
    assert changed(settings, host="0.0.0.0").needs_tokens
    assert not changed(settings, host="0.0.0.0", insecure=True).needs_tokens
    assert changed(settings, host="0.0.0.0", insecure=True, require_tokens=True).needs_tokens
