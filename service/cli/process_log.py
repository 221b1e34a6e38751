"""Sets up the log of the commands that are processes of a deployment."""

from service.settings import BadSettings
from trainer.process_log.setup import BadLogSettings, LogSettings, set_up_process


def set_up_log(role: str, **fields: str) -> None:
    """Raises BadSettings."""
    try:
        set_up_process(LogSettings.from_env(), role, **fields)
    except BadLogSettings as error:
        raise BadSettings(str(error)) from error
