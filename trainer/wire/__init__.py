"""The HTTP bodies that the service exchanges with agents, slots and external workers.

This contract is shared by all callers, including people with curl. It needs only pydantic, so that both sides can
import it. Times are UTC; durations are seconds.
"""

# The service takes some rules from here that are not bodies, since it imports nothing else of the trainer.
from trainer.command_template import Placeholder, placeholders
from trainer.node_labels import selector_text, selects
from trainer.package_files import REQUIREMENTS_FILE, is_in_package, requirements_in
from trainer.reservation import Reservation, reserve
from trainer.resources import Bundle, Room, WorkerGroup
from trainer.storable_values import is_storable_text, storable_float, storable_text
from trainer.wire.agent import (
    Claim,
    Deletion,
    DeletionResults,
    FailedDeletion,
    HeldAttempt,
    HeldAttempts,
    Instance,
    LostAttempt,
    Node,
    PartlyNeededFolder,
)
from trainer.wire.assignment import STOP_GRACE_SECONDS, Assignment, CheckpointRef, Lease
from trainer.wire.attempt import (
    Answer,
    Decision,
    Failure,
    FailureKind,
    Finish,
    Finished,
    Heartbeat,
    LogChunk,
    Outcome,
    PhaseSeconds,
    PhaseTime,
    RankError,
    Report,
    Reports,
    SystemSample,
    SystemSamples,
)
from trainer.wire.field_types import MAX_COUNT, Count, SelectorMember, Text
from trainer.wire.specification.datasets import (
    NO_ENTRYPOINT,
    DataConfig,
    DatasetFiles,
    DatasetFormat,
    DatasetFunction,
    Datasets,
    UnionMember,
)
from trainer.wire.specification.num_workers import WorkerRange
from trainer.wire.specification.runtime_env import Pip, RuntimeEnv, Uv
from trainer.wire.specification.trainer import (
    CommandMetrics,
    Kind,
    Scaling,
    SecretSource,
    TorchConfig,
    Trainer,
)
from trainer.wire.specification.validation import Validation

__all__ = [
    "MAX_COUNT",
    "NO_ENTRYPOINT",
    "REQUIREMENTS_FILE",
    "STOP_GRACE_SECONDS",
    "Answer",
    "Assignment",
    "Bundle",
    "CheckpointRef",
    "Claim",
    "CommandMetrics",
    "Count",
    "DataConfig",
    "DatasetFiles",
    "DatasetFormat",
    "DatasetFunction",
    "Datasets",
    "Decision",
    "Deletion",
    "DeletionResults",
    "FailedDeletion",
    "Failure",
    "FailureKind",
    "Finish",
    "Finished",
    "Heartbeat",
    "HeldAttempt",
    "HeldAttempts",
    "Instance",
    "Kind",
    "Lease",
    "LogChunk",
    "LostAttempt",
    "Node",
    "Outcome",
    "PartlyNeededFolder",
    "PhaseSeconds",
    "PhaseTime",
    "Pip",
    "Placeholder",
    "RankError",
    "Report",
    "Reports",
    "Reservation",
    "Room",
    "RuntimeEnv",
    "Scaling",
    "SecretSource",
    "SelectorMember",
    "SystemSample",
    "SystemSamples",
    "Text",
    "TorchConfig",
    "Trainer",
    "UnionMember",
    "Uv",
    "Validation",
    "WorkerGroup",
    "WorkerRange",
    "is_in_package",
    "is_storable_text",
    "placeholders",
    "requirements_in",
    "reserve",
    "selector_text",
    "selects",
    "storable_float",
    "storable_text",
]
