"""Ids of responses and their items."""

import secrets


def new_id(prefix: str) -> str:
    """A fresh id of a kind of object: `resp_...`, `msg_...`."""
    return f"{prefix}_{secrets.token_hex(24)}"
