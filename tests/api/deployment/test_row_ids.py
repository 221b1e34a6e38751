"""PostgreSQL's `integer` ends at 2^31; services make that many decisions. SQLite's does not."""

import pytest
from sqlalchemy import text

from service.store.checkpoints.checkpoint_deletions import add_deletions
from service.store.sql.database import database_now
from service.store.tables import PackageRow
from tests.conftest import Api, Held

pytestmark = [pytest.mark.slow, pytest.mark.databases("postgresql")]

LAST = 2**31 - 1


@pytest.fixture(autouse=True)
def used_up(service: Api) -> None:
    with service.app.state.context.database.write() as session:
        for table in ("attempts", "decisions", "checkpoint_deletions"):
            session.execute(text(f"select setval('{table}_id_seq', {LAST})"))


def decided(service: Api) -> Held:
    """A trial with two decisions."""
    name = service.create(early_stopping={"rule": "asha", "reduction_factor": 2})["name"]
    held = service.ask(name)
    assert held
    for value in (0.5, 0.6):
        held.report(accuracy=value)
    return held


def test_decisions_are_stored_and_listed(service: Api) -> None:
    path, numbers = f"/v1/trials/{decided(service).trial}/decisions", []
    page = service.get(path, params={"limit": 1})
    numbers += [one["milestone"] for one in page["items"]]
    page = service.get(path, params={"limit": 1, "cursor": page["next_cursor"]})
    numbers += [one["milestone"] for one in page["items"]]
    assert numbers == [1, 2]
    assert page["next_cursor"] is None


def test_deletions_are_given_and_taken_back(service: Api) -> None:
    with service.app.state.context.database.write() as session:
        add_deletions(session, ["here"], ["/a/folder"], database_now(session))
    [given] = service.get("/v1/agents/here/attempts")["deletions"]
    assert given["id"] > LAST
    for results in ({"failed": [{"id": given["id"], "error": "the disk is away"}]}, {"deleted": [given["id"]]}):
        service.post("/v1/agents/here/deletions", 204, json=results)
    assert service.get("/v1/agents/here/attempts")["deletions"] == []


def test_a_package_may_be_larger(service: Api) -> None:
    """A test cannot send one."""
    context = service.app.state.context
    with context.database.write() as session:
        large = PackageRow(id="sha256:0", filename="data.zip", size=3 * 10**9, files=[], created_at=context.clock())
        session.add(large)
    with context.database.read() as session:
        assert session.get_one(PackageRow, "sha256:0").size == 3 * 10**9
