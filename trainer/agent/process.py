"""The agent as `trainer.agent.supervisor` runs it: `python -m trainer.agent.process URL NAME RAY_ADDRESS`.

Its input is a pipe that closes when the parent ends.

The agent's token is in PACELINE_TOKEN, because everybody can read a command line. PACELINE_DATA_DIR is where it leaves
its sign of life; it has no other data.
"""

import logging
import os
import sys
import threading
from pathlib import Path

from trainer.agent.agent import AgentRefused, AgentReplaced, run_agent
from trainer.agent.cluster import ClusterUnreachable
from trainer.agent.supervisor import CLUSTER_LOST, REFUSED, REPLACED


def main(service_url: str, name: str, ray_address: str) -> int:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        run_agent(
            service_url, name, ray_address, token=os.environ.get("PACELINE_TOKEN"), state=_state(), spare_slot=True
        )
    except AgentRefused as refused:
        sys.stderr.write(f"error: {refused}\n")
        return REFUSED
    except ClusterUnreachable as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - the sentence says it all
        os._exit(CLUSTER_LOST)  # Ray would wait long for what is gone
    except AgentReplaced as replaced:
        logging.getLogger(__name__).error("%s", replaced)  # noqa: TRY400 - the sentence says it all
        return REPLACED
    return 0


def _state() -> Path | None:
    told = os.environ.get("PACELINE_DATA_DIR")
    try:
        return Path(told) if told else Path.home() / ".local" / "state" / "paceline"
    except RuntimeError:  # a user without a home
        return None


def _end_with_the_parent() -> None:
    """At once: the slots go on without an agent, and the next one takes them over."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(main(*sys.argv[1:4]))
