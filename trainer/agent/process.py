"""The agent as `trainer.agent.supervisor` runs it: `python -m trainer.agent.process URL NAME RAY_ADDRESS`.

Its input is a pipe that closes when the parent ends.

The agent's token is in PACELINE_TOKEN, because every user can read a command line; other settings are read in
`trainer.agent.settings`. The slots get PACELINE_LOG_FORMAT and PACELINE_LOG_LEVEL from this process.
"""

import logging
import os
import sys
import threading

from trainer.agent.agent import AgentRefused, AgentReplaced, run_agent
from trainer.agent.cluster import ClusterUnreachable
from trainer.agent.settings import (
    BadSetting,
    preloaded_modules,
    prestarted_workers,
    state_directory,
    trusted_certificates,
)
from trainer.agent.supervisor import CLUSTER_LOST, REFUSED, REPLACED
from trainer.process_log.redaction import redacted
from trainer.process_log.setup import LogSettings, set_up_process, writes_json


def main(service_url: str, name: str, ray_address: str) -> int:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        run_agent(
            service_url,
            name,
            ray_address,
            token=os.environ.get("PACELINE_TOKEN"),
            certificates=trusted_certificates(os.environ, service_url.split(",")),
            state=state_directory(os.environ),
            spare_slot=True,
            prestarted=prestarted_workers(os.environ),
            preloaded=preloaded_modules(os.environ),
        )
    except (AgentRefused, BadSetting) as refused:
        if writes_json():
            logging.getLogger(__name__).error("%s", refused)  # noqa: TRY400 - the message is enough
        else:
            sys.stderr.write(f"error: {redacted(str(refused))}\n")  # as the lines of the log are
        return REFUSED
    except ClusterUnreachable as error:
        logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - the message is enough
        os._exit(CLUSTER_LOST)  # Ray's shutdown would wait long for the lost cluster
    except AgentReplaced as replaced:
        logging.getLogger(__name__).error("%s", replaced)  # noqa: TRY400 - the message is enough
        return REPLACED
    return 0


def _exit_with_parent() -> None:
    """End without cleanup: the slots go on without an agent, and the next one adopts them."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    set_up_process(LogSettings.from_env(), "agent", agent=sys.argv[2])
    sys.exit(main(*sys.argv[1:4]))
