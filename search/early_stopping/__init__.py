"""Early stopping: which trials are stopped or paused, and why."""

from search.early_stopping.decision import Release, Verdict
from search.early_stopping.history import AT_END, COMPLETED, UNCOMPARED, History, MetricReport
from search.early_stopping.in_memory_history import InMemoryHistory
from search.early_stopping.paused_trials import PausedTrial, PausedTrials
from search.early_stopping.peers import Peer, Peers, Standing
from search.early_stopping.registry import RULES, EarlyStoppingSpec
from search.early_stopping.rule import Rule
from search.early_stopping.rules.wrappable_rules import NoneSpec

__all__ = [
    "AT_END",
    "COMPLETED",
    "RULES",
    "UNCOMPARED",
    "EarlyStoppingSpec",
    "History",
    "InMemoryHistory",
    "MetricReport",
    "NoneSpec",
    "PausedTrial",
    "PausedTrials",
    "Peer",
    "Peers",
    "Release",
    "Rule",
    "Standing",
    "Verdict",
]
