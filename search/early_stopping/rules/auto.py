"""Stands for a rule that the service chooses; `search.early_stopping.auto_choice` chooses it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from search.early_stopping.rule import MAX_COUNT, Rule


class Auto(Rule):
    """The service chooses a rule in its place: immediately if `max_step` is given, else by the first whole trials.

    Until it has chosen, no trial is stopped.
    """

    not_replayed: ClassVar[str | None] = "stands for a rule that the service chooses; replay the chosen one"
    rule: Literal["auto"] = "auto"
    """the name of the rule"""
    max_step: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = None
    """the last step of a whole training, if you know it; null: the first trials that run to their ends show it"""
