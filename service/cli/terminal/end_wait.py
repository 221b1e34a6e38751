"""Waiting for the end of an experiment, also while the service starts again."""

import time
from typing import Any

from service.cli.client.answers import Refused, Unreachable
from service.cli.client.client import Client
from service.cli.terminal.outage import POLL_SECONDS, Outage

WAIT_EXIT_CODES = {"completed": 0, "failed": 3, "stopped": 4}
"""Of `wait`, by the status in which the experiment has ended: other codes than those of errors."""

ENDED = frozenset(WAIT_EXIT_CODES)

Json = dict[str, Any]


def ended_experiment(client: Client, name: str, outage: Outage) -> Json:
    """Wait until the experiment has ended, and return it.

    Raises Unreachable and Refused; but an experiment that was found is waited for across an outage.
    """
    experiment = client.experiment(name)
    while experiment["status"] not in ENDED:
        time.sleep(POLL_SECONDS)
        try:
            experiment = client.experiment(experiment["id"])
            outage.over()
        except (Unreachable, Refused) as error:
            outage.seen(error)
    return experiment
