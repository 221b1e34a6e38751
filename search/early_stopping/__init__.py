"""Early stopping: which trials cannot hold the pace, and the sentence that says why."""

from search.early_stopping.rule import Peer, PeerList, Peers, Rule, Standing, Verdict
from search.early_stopping.spec import PLANNED, RULES, EarlyStoppingSpec, NoneSpec, rule_for

__all__ = [
    "PLANNED",
    "RULES",
    "EarlyStoppingSpec",
    "NoneSpec",
    "Peer",
    "PeerList",
    "Peers",
    "Rule",
    "Standing",
    "Verdict",
    "rule_for",
]
