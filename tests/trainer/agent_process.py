"""An agent in a process of its own, for the tests that end it: `python agent_process.py URL NAME RAY_ADDRESS`.

On SIGUSR1, it writes to its log where its threads are.
"""

import faulthandler
import signal
import sys

from trainer.agent import agent
from trainer.process_log.setup import LogSettings, set_up_process

# On a busy machine, trials must find the slot idle, although the next agent or the slot's status is late.
IDLE_SECONDS = 120.0
agent.SETTLE_SECONDS = 15.0

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    set_up_process(LogSettings.from_env(), "agent", agent=sys.argv[2])
    agent.run_agent(*sys.argv[1:4], idle_seconds=IDLE_SECONDS, spare_slot=True, prestarted=2)
