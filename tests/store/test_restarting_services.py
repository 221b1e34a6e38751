"""Which leases a service extends that was away while another one was there, or was not."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from service.operations.attempts.heartbeat import take_heartbeat
from service.runtime.context import Context
from service.settings import Settings
from service.store.sql.database import Database
from service.store.tables import ServiceRow
from tests.conftest import changed
from tests.store.lease_loops import LeaseLoops
from tests.store.leased_trials import LEASE_SECONDS, OVER_A_LEASE, an_assignment, let_pass, trial_of
from trainer.wire import Heartbeat

pytestmark = [pytest.mark.slow, pytest.mark.databases("postgresql")]


class TwoServices:
    """One that runs, with a holder, and one beside it that has just started again whenever `restart` is called."""

    def __init__(self, context: Context, settings: Settings) -> None:
        database = Database(settings.database_url)
        named = changed(settings, lease_seconds=LEASE_SECONDS, advertised_url="http://restarting:8000")
        self.restarting = Context(named, database)
        self.running, self._loop = context, LeaseLoops(context, clock=lambda: 0.0)
        self._loop.run_once()

    def restart(self, count: int) -> None:
        for _ in range(count):
            let_pass(self.running, LEASE_SECONDS / 2)
            LeaseLoops(self.restarting).run_once()
            self._loop.run_once()

    def let_running_one_disappear(self) -> None:
        with self.running.database.write() as session:
            for row in session.query(ServiceRow):
                row.seen_at -= timedelta(seconds=LEASE_SECONDS)


@pytest.fixture
def two_services(context: Context, settings: Settings) -> Iterator[TwoServices]:
    services = TwoServices(context, settings)
    yield services
    services.restarting.close()


def test_a_service_that_restarts_again_and_again_keeps_no_lost_attempt_of_another(
    context: Context, two_services: TwoServices
) -> None:
    lost = an_assignment(context)
    take_heartbeat(context, lost.trial, lost.lease.token, Heartbeat(has_alternatives=True))
    two_services.restart(4)
    assert trial_of(context, lost).status == "queued"


def test_a_restarted_service_extends_the_leases_of_those_who_know_no_other(
    context: Context, two_services: TwoServices
) -> None:
    held = an_assignment(two_services.restarting)
    take_heartbeat(two_services.restarting, held.trial, held.lease.token)
    two_services.restart(4)
    assert trial_of(context, held).status == "running"


def test_a_restarted_service_extends_all_leases_if_the_others_are_away(
    context: Context, two_services: TwoServices
) -> None:
    held = an_assignment(context)
    take_heartbeat(context, held.trial, held.lease.token, Heartbeat(has_alternatives=True))
    let_pass(context, OVER_A_LEASE)
    two_services.let_running_one_disappear()
    LeaseLoops(two_services.restarting).run_once()
    assert trial_of(context, held).status == "running"
