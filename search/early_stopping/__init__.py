"""Early stopping: which trials cannot hold the pace, and the sentence that says why."""

from search.early_stopping.contract import (
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
from search.early_stopping.decide import decide
from search.early_stopping.in_memory_history import Memory
from search.early_stopping.pause_contract import Member, Pausing, Release, Waiting
from search.early_stopping.registry import RULES, EarlyStoppingSpec, rule_for
from search.early_stopping.rules.simple import NoneSpec

__all__ = [
    "AT_END",
    "COMPLETED",
    "RULES",
    "EarlyStoppingSpec",
    "History",
    "Member",
    "Memory",
    "NoneSpec",
    "Pausing",
    "Peer",
    "Peers",
    "Release",
    "Reported",
    "Rule",
    "Standing",
    "Verdict",
    "Waiting",
    "decide",
    "rule_for",
]
