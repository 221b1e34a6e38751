"""Ray's errors and source files by their names, for code that cannot import what raises them.

An error may come from another process, and importing Ray Train takes seconds. If Ray renames one of these, it is no
longer recognized, and nothing fails: `tests/trainer/ray_train/test_ray_errors.py` checks each name.
"""

import re

CONNECTION_FAILURES = frozenset({"ActorUnavailableError", "LocalRayletDiedError", "NodeDiedError", "RpcError"})
"""The death of a node or of the connection to it. `ray.train.report()` raises them, too."""

RAY_FAILURES = CONNECTION_FAILURES | {"ObjectStoreFullError", "OutOfDiskError", "OwnerDiedError", "WorkerCrashedError"}
"""The death of a part of Ray, or of the connection to it, and a node that has no room for what Ray keeps there."""

DEATHS = frozenset({"ActorDiedError", "RayActorError", "WorkerGroupStartupFailedError", "WorkerHealthCheckFailedError"})
"""The death of a process of the attempt."""

NOT_STARTED = frozenset({"WorkerGroupStartupTimeoutError", "ResourcesTimeout"})
"""The worker group's resources did not become free. The second one is Paceline's own."""

NOT_SET_UP = "RuntimeEnvSetupError"

NO_STATE = "CheckpointManagerInitializationError"

PREEMPTION = "PreemptionError"

STORAGE_FILES = re.compile(r"train/v2/_internal/execution/(storage\.py|checkpoint/)|\bpyarrow\b")
"""The source files, in a traceback, in which Ray Train uses the storage. Other OSErrors are not of the storage."""

STORAGE_STATE = re.compile(r"train/v2/_internal/execution/checkpoint/")
"""The source files of Ray Train that read back, as JSON, what an attempt has saved; of a new one there is nothing."""
