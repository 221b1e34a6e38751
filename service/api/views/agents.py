"""Agents as the API shows them."""

from datetime import datetime
from typing import Any

from service.api.views.rows import View


class AgentView(View):
    """An agent, connected or not."""

    name: str
    """the agent's name"""
    connected: bool
    """whether it has claimed lately"""
    nodes: list[Any]
    """the nodes of its Ray cluster, with total and free resources"""
    storage_error: str | None
    """why it cannot write to the storage; null if it can"""
    running: list[str]
    """the ids of the trials that it runs"""
    first_seen_at: datetime
    """its first claim"""
    last_seen_at: datetime
    """its newest claim"""
