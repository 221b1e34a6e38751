"""A trial on the command line: its id, or its experiment and its number, as in `digits#3`."""

import re

from service.cli.argument_values import BadArgument
from service.cli.client.client import Client

_ID = re.compile("t-[0-9a-f]{12}")
_NUMBERED = re.compile("(.+)#([0-9]{1,9})", re.DOTALL)


def is_trial(text: str) -> bool:
    """An experiment's name may begin with `t-`, too, but has no `#`."""
    return bool(_ID.fullmatch(text) or _NUMBERED.fullmatch(text))


def check_trial(text: str) -> str:
    """Raises BadArgument for what is no trial, such as the name of an experiment."""
    if not is_trial(text):
        raise BadArgument(
            f"{text!r} must be a trial: its id (t-…), or NAME#NUMBER; `paceline show NAME` lists an experiment's trials"
        )
    return text


def trial_id(client: Client, text: str) -> str:
    """The id of a trial, for which `is_trial` holds. Raises BadArgument if no trial has the number."""
    numbered = _NUMBERED.fullmatch(text)
    if numbered is None:
        return text
    experiment, number = numbered[1], int(numbered[2])
    for trial in client.trials(experiment, number):
        return str(trial["id"])
    raise BadArgument(f"experiment {experiment} has no trial {number}; `paceline show {experiment}` lists its trials")
