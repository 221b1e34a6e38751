"""What follows when a rule of another package fails: a logged traceback, or a refused request."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from search.early_stopping.plugin_rules import rule_failures
from search.early_stopping.rule import Rule
from search.mistakes import Mistake
from search.plugins import PluginFailed
from service.errors import Invalid, ServiceError

log = logging.getLogger(__name__)


@contextmanager
def logged_failures(rule: Rule, what: str) -> Iterator[None]:
    """The rule then decides nothing: a report is stored all the same, and the trial goes on."""
    try:
        with rule_failures(rule, SQLAlchemyError):
            yield
    except PluginFailed:
        log.exception("the rule %s failed on %s, and decides nothing there", rule.rule, what)


@contextmanager
def refused_failures(rule: Rule) -> Iterator[None]:
    """Raise Invalid with what the rule raises."""
    try:
        with rule_failures(rule, ServiceError, SQLAlchemyError):
            yield
    except PluginFailed as error:
        raise Invalid([Mistake(("early_stopping", "rule"), str(error))]) from error
