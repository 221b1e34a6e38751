"""The agent as `trainer.agent.supervisor` runs it: `python -m trainer.agent.process URL NAME RAY_ADDRESS`.

Its input is a pipe that closes when the parent ends.

The agent's token is in PACELINE_TOKEN, because every user can read a command line. PACELINE_DATA_DIR is the directory
of its liveness lock; it has no other data. PACELINE_PRESTARTED_WORKERS is how many idle worker processes are kept on
each node; with 0 there are also no fork servers. The slots get PACELINE_LOG_FORMAT and PACELINE_LOG_LEVEL from this
process.
"""

import logging
import os
import sys
import threading
from pathlib import Path

from trainer.agent.agent import AgentRefused, AgentReplaced, run_agent
from trainer.agent.cluster import ClusterUnreachable
from trainer.agent.prestart_loop import default_count
from trainer.agent.supervisor import CLUSTER_LOST, REFUSED, REPLACED
from trainer.process_log.setup import LogSettings, set_up_process, writes_json


def main(service_url: str, name: str, ray_address: str) -> int:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        run_agent(
            service_url,
            name,
            ray_address,
            token=os.environ.get("PACELINE_TOKEN"),
            state=_state_directory(),
            spare_slot=True,
            prestarted=_prestarted_workers(),
        )
    except AgentRefused as refused:
        if writes_json():
            logging.getLogger(__name__).error("%s", refused)  # noqa: TRY400 - the message is enough
        else:
            sys.stderr.write(f"error: {refused}\n")
        return REFUSED
    except ClusterUnreachable as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - the message is enough
        os._exit(CLUSTER_LOST)  # Ray's shutdown would wait long for the lost cluster
    except AgentReplaced as replaced:
        logging.getLogger(__name__).error("%s", replaced)  # noqa: TRY400 - the message is enough
        return REPLACED
    return 0


def _prestarted_workers() -> int:
    configured = os.environ.get("PACELINE_PRESTARTED_WORKERS") or "auto"
    if configured == "auto":
        return default_count()
    if not configured.isdecimal():
        raise AgentRefused(
            f"PACELINE_PRESTARTED_WORKERS is {configured!r}; it has to be a whole number, such as 4, or auto"
        )
    return int(configured)


def _state_directory() -> Path | None:
    configured = os.environ.get("PACELINE_DATA_DIR")
    try:
        return Path(configured) if configured else Path.home() / ".local" / "state" / "paceline"
    except RuntimeError:  # a user without a home
        return None


def _exit_with_parent() -> None:
    """Without cleanup: the slots go on without an agent, and the next one adopts them."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    set_up_process(LogSettings.from_env(), "agent", agent=sys.argv[2])
    sys.exit(main(*sys.argv[1:4]))
