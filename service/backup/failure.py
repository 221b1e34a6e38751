"""Why a backup or a restore cannot be done."""


class BackupFailed(Exception):
    """The message says what is wrong, and what would be right. Nothing was changed, unless it says so."""
