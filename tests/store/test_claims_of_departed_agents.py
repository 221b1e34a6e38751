"""A claim of an agent process that has left its name gets no trial, whatever there is to run."""

from typing import Any

import pytest
from sqlalchemy import func, select

from service.operations.agents.registration import register_agent, release_name
from service.operations.attempts.scheduling.claim import AgentLeft, claim
from service.operations.experiments.creation import store_experiment
from service.runtime.context import Context
from service.specification.parser import parse_spec
from service.store.tables import AttemptRow
from tests.api.agents.agent_instances import TORCH, an_instance
from tests.conftest import a_spec
from trainer.wire import Assignment, Claim, Instance, Node

pytestmark = pytest.mark.databases("sqlite")

FIRST, SECOND = (Instance(**an_instance(pid)) for pid in (1, 2))


@pytest.fixture(autouse=True)
def _experiment(context: Context) -> None:
    store_experiment(context, parse_spec(a_spec(trainer=TORCH)))


def message_of(instance: Instance, request_id: str = "one", **more: Any) -> Claim:
    node = Node(total={"CPU": 4.0}, free={"CPU": 4.0})
    return Claim(request_id=request_id, nodes=[node], wait_seconds=0, instance=instance, **more)


def first_is_replaced(context: Context) -> None:
    register_agent(context, "here", message_of(SECOND, replaces=FIRST))


def attempt_count(context: Context) -> int:
    with context.database.read() as session:
        return session.scalar(select(func.count()).select_from(AttemptRow)) or 0


@pytest.mark.parametrize("more", [{}, {"storage_error": "read-only file system"}], ids=["whole", "without storage"])
def test_a_claim_of_an_agent_that_was_replaced_gets_no_trial(context: Context, more: dict[str, Any]) -> None:
    register_agent(context, "here", message_of(FIRST))
    first_is_replaced(context)
    assert claim(context, "here", message_of(FIRST, **more)) == AgentLeft()
    assert attempt_count(context) == 0
    assert isinstance(claim(context, "here", message_of(SECOND)), Assignment)


def test_a_claim_of_an_agent_that_has_released_its_name_gets_no_trial(context: Context) -> None:
    register_agent(context, "here", message_of(FIRST))
    release_name(context, "here", FIRST)
    assert claim(context, "here", message_of(FIRST)) == AgentLeft()
    assert attempt_count(context) == 0


def test_a_repeated_claim_of_an_agent_that_was_replaced_does_not_get_its_attempt_again(context: Context) -> None:
    register_agent(context, "here", message_of(FIRST))
    given = claim(context, "here", message_of(FIRST))
    assert isinstance(given, Assignment)
    assert claim(context, "here", message_of(FIRST)) == given
    first_is_replaced(context)
    assert claim(context, "here", message_of(FIRST)) == AgentLeft()
    assert attempt_count(context) == 1
