"""An agent in a process of its own, for the tests that end it: `python agent_process.py URL NAME RAY_ADDRESS`."""

import logging
import sys

from trainer.agent.agent import run_agent

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    run_agent(*sys.argv[1:4], spare_slot=True, prestarted=2)
