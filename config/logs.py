"""What must not reach the log: addresses that are themselves a secret."""

from __future__ import annotations

import logging
import re

# Of invitations, forgotten passwords and addresses to confirm: who has the link may use it.
SECRET_ADDRESS = re.compile(r"(/invitations/|/password/reset/key/|/confirm-email/)[^/\s]+")


class WithoutTokens(logging.Filter):
    """For loggers that name the address of a request: a failed one, a forged one."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_cut(argument) if isinstance(argument, str) else argument for argument in record.args)
        return True


def _cut(text: str) -> str:
    return SECRET_ADDRESS.sub(r"\1…", text)
