"""The two ways to say that an agent is connected agree: of its row, and in SQL."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

from service.store.agents import CONNECTED, connected_agents, is_connected
from service.store.sql.database import Database
from service.store.tables import AgentRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = NOW - CONNECTED
MOMENT = timedelta(microseconds=1)


def test_the_row_and_the_sql_agree(database_url: str) -> None:
    seen = {"after the limit": LIMIT + MOMENT, "at the limit": LIMIT, "before the limit": LIMIT - MOMENT, "now": NOW}
    agents = [AgentRow(name=name, nodes=[], first_seen_at=LIMIT, last_seen_at=at) for name, at in seen.items()]
    with closing(Database(database_url)) as database, database.write() as session:
        session.add_all(agents)
        session.flush()
        found = [agent.name for agent in connected_agents(session, NOW)]
        assert found == [agent.name for agent in agents if is_connected(agent, NOW)] == ["after the limit", "now"]
