"""What an agent reports of itself and its cluster, and what the service answers."""

from pydantic import Field

from trainer.wire.field_types import (
    Bool,
    Capacity,
    Count,
    DeletionId,
    Key,
    Message,
    Ordinal,
    ReadableText,
    Seconds,
    Text,
)


class Node(Message):
    """A node of an agent's Ray cluster. `free` counts what idle slots hold as free."""

    total: dict[Key, Capacity]
    """all resources of the node"""
    free: dict[Key, Capacity]
    """those that no trial uses"""
    labels: dict[Key, Text] = Field(default_factory=dict)
    """the node's labels, which `trainer.scaling.label_selector` selects"""
    withheld: ReadableText | None = Field(default=None, max_length=2_000)
    """why it gets no new trial for some minutes; nothing of it is free meanwhile"""


class HeldAttempt(Message):
    """One attempt that an agent was given, by its trial's id and its number."""

    trial: Text
    """the trial's id"""
    attempt: Ordinal
    """the attempt's number"""


class Deletion(Message):
    """A directory that an agent is to delete: of a deleted experiment, or with checkpoints that are not kept."""

    id: int
    """names the deletion"""
    directory: str
    """what is to be deleted"""


class FailedDeletion(Message):
    """Why a directory could not be deleted. The service names it again."""

    id: DeletionId
    """names the deletion"""
    error: ReadableText = Field(max_length=2_000)
    """why, for people"""


class DeletionResults(Message):
    """What became of deletions. A directory that does not exist is deleted."""

    deleted: list[DeletionId] = Field(default_factory=list, max_length=1_000)
    """the ids of those that are done"""
    failed: list[FailedDeletion] = Field(default_factory=list, max_length=1_000)
    """those that are not"""


class PartlyNeededFolder(Message):
    """The folder of an attempt that was cut off, perhaps while it saved a checkpoint, and has saved others before."""

    directory: str
    """the folder"""
    keep: list[str]
    """the names of the directories in it that are checkpoints: remove the other directories"""


class HeldAttempts(Message):
    """The attempts that the service believes to run on an agent of this name.

    `obsolete`: directories of experiments that have ended recently, which no trial can resume from. The agent removes
    them, and what `partly_needed` names. Every agent gets the same ones, repeatedly for a while. `deletions` are
    directories that this agent is to delete; they are named until it reports so. `storage`: where checkpoints go.
    """

    attempts: list[HeldAttempt]
    """the attempts that the service believes to run on this agent"""
    obsolete: list[str] = Field(default_factory=list)
    """directories of checkpoints that no trial can resume from: remove them"""
    partly_needed: list[PartlyNeededFolder] = Field(default_factory=list)
    """folders of attempts that may also hold parts of checkpoints: remove those"""
    deletions: list[Deletion] = Field(default_factory=list)
    """directories that are not needed any more: delete them, and say what became of them"""
    storage: str | None = None
    """where checkpoints are saved"""


class LostAttempt(HeldAttempt):
    """An attempt that no slot runs."""

    began: Bool = True
    """whether any of its workers may have run"""


class Instance(Message):
    """One process of an agent."""

    place: Text = Field(min_length=1, max_length=500)
    """a PID namespace and boot of a machine"""
    pid: Count
    """the process id there"""
    started: Count
    """the process's start time there, in clock ticks"""


class Claim(Message):
    """An agent's request for a trial of any experiment. The same `request_id` gets the same answer.

    `instance`: the process that claims. While it keeps claiming, another process with the agent's name is refused (409
    `agent-name-taken`, with the current process as `holder`), unless it states in `replaces` that the holder is dead.

    `lost`: attempts that the agent was given and that none of its slots runs. The service ends them immediately, before
    their leases expire, and ignores those that have ended already.

    `storage_error`: why the agent cannot write to the storage. It then gets no trial.
    """

    request_id: Text = Field(min_length=1, max_length=200)
    """names this claim: a repeat gets the same answer"""
    nodes: list[Node]
    """the nodes of the agent's cluster"""
    running: list[Text] = Field(default_factory=list, description="ids of the trials that run on this agent")
    lost: list[LostAttempt] = Field(default_factory=list)
    """attempts that the agent was given and none of its slots runs"""
    instance: Instance | None = None
    """the process that claims"""
    replaces: Instance | None = None
    """the process that held the agent's name, if it is known to be dead"""
    storage_error: ReadableText | None = Field(default=None, max_length=2_000)
    """why the agent cannot write to the storage"""
    wait_seconds: Seconds = 0
    """how long to wait for a trial"""
