"""Who holds an attempt: an agent, or a caller that asked for the trial. Without imports: the command line needs it."""

ASK_HOLDER = "ask "
"""The prefix of the holder's name when a caller runs a trial itself, without an agent."""


def is_caller(holder: str) -> bool:
    """Whether the holder is a caller that runs the trial itself."""
    return holder.startswith(ASK_HOLDER)


def describe_holder(holder: str) -> str:
    """The holder of an attempt in words."""
    return "the external caller" if is_caller(holder) else f"agent {holder!r}"
