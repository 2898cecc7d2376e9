"""`encrypted_content`: reasoning that a client carries without reading it, and cannot alter.

It is for clients that keep nothing here (`"store": false`) and send every item back. They have read
the thought already, so that it is packed and signed, and not secret. What does not bear our
signature (another provider's, or one of an installation whose key is gone) is no use to the model.
"""

import base64
import binascii
import hmac
import os
import secrets
import zlib
from contextlib import suppress
from pathlib import Path

_MARK = "r1."
_SIGNATURE = 32
_KEY_BYTES = 32


class Seal:
    """Signs with a key that outlives the process where there is a folder for it."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = folder / "reasoning.key" if folder is not None else None
        self._key: bytes | None = None

    def close(self, thought: str) -> str:
        """The thought as an opaque word."""
        packed = zlib.compress(thought.encode())
        return _MARK + base64.urlsafe_b64encode(self._sign(packed) + packed).decode()

    def open(self, word: str) -> str | None:
        """The thought in a word of ours; None where it is not, or was altered."""
        if not word.startswith(_MARK):
            return None
        try:
            raw = base64.b64decode(word[len(_MARK) :], altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            return None
        signature, packed = raw[:_SIGNATURE], raw[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(packed)):
            return None
        return zlib.decompress(packed).decode()

    def _sign(self, packed: bytes) -> bytes:
        if self._key is None:
            self._key = self._kept_key()
        return hmac.digest(self._key, packed, "sha256")

    def _kept_key(self) -> bytes:
        if self._file is None:
            return secrets.token_bytes(_KEY_BYTES)
        with suppress(OSError):
            if len(key := self._file.read_bytes()) == _KEY_BYTES:
                return key
        key = secrets.token_bytes(_KEY_BYTES)
        with suppress(OSError):  # then it lasts as long as the process
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}.tmp")
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(key)
            fresh.replace(self._file)
        return key
