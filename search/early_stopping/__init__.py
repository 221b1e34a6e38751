"""Early stopping: which trials cannot hold the pace, and the sentence that says why."""

from search.early_stopping.deciding import decide
from search.early_stopping.memory import Memory
from search.early_stopping.rule import (
    AT_END,
    COMPLETED,
    History,
    Peer,
    Peers,
    Reported,
    Rule,
    Standing,
    Verdict,
)
from search.early_stopping.simple import NoneSpec
from search.early_stopping.spec import RULES, EarlyStoppingSpec, rule_for

__all__ = [
    "AT_END",
    "COMPLETED",
    "RULES",
    "EarlyStoppingSpec",
    "History",
    "Memory",
    "NoneSpec",
    "Peer",
    "Peers",
    "Reported",
    "Rule",
    "Standing",
    "Verdict",
    "decide",
    "rule_for",
]
