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
from search.early_stopping.waiting import Member, Pausing, Release, Waiting

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
