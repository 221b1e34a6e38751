"""Ray's command line (`python -m trainer.ray_train.processes.ray_command start …`) for nodes of our own.

Their worker processes start by `setup_worker`, which takes a third of a second less than Ray's.
"""

from pathlib import Path

from ray._private import ray_constants
from ray.scripts.scripts import main

from trainer.ray_train.processes import setup_worker

if __name__ == "__main__":
    # Ray joins it to a folder, which an absolute path replaces.
    ray_constants.SETUP_WORKER_FILENAME = str(Path(setup_worker.__file__).resolve())
    main()
