"""Agents as the API shows them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel


class AgentView(BaseModel):
    """`nodes` are the nodes of its Ray cluster with total and free resources; `running` are the ids of its trials."""

    name: str
    connected: bool
    nodes: list[Any]
    running: list[str]
    first_seen_at: datetime
    last_seen_at: datetime
