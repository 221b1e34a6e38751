"""Stands for a rule that is not chosen yet; `search.early_stopping.auto_choice` chooses it."""

from typing import ClassVar, Literal

from search.early_stopping.rule import Rule


class Auto(Rule):
    """No trial is stopped. The service chooses a rule in its place when enough trials have run to their ends."""

    not_replayed: ClassVar[str | None] = "stands for a rule that is not chosen yet"
    rule: Literal["auto"] = "auto"
    """the name of the rule"""
