"""An agent in a process of its own, for the tests that end it: `python agent_process.py URL NAME RAY_ADDRESS`."""

import sys

from trainer.agent.agent import run_agent
from trainer.process_log.setup import LogSettings, set_up_process

if __name__ == "__main__":
    set_up_process(LogSettings.from_env(), "agent", agent=sys.argv[2])
    run_agent(*sys.argv[1:4], spare_slot=True, prestarted=2)
