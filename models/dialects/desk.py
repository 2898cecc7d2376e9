"""What came of an attempt to read a call, and what all such attempts need."""

from dataclasses import dataclass
from enum import Enum, auto

from models.dialects.emitter import Emitter
from models.dialects.ids import CallIds
from models.dialects.offered import Offered
from models.dialects.reader import Reader


class Outcome(Enum):
    """How an attempt ended, and where the reader stands after it."""

    NONE = auto()
    """This is no call. The reader is anywhere; whoever asked goes back."""
    CALLED = auto()
    """A call, whole. The reader is right after it."""
    BROKEN = auto()
    """A call had begun and broke off. The reader is where it did."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What those who read calls work with."""

    reader: Reader
    emitter: Emitter
    ids: CallIds
    offered: Offered

    def begin(self, name: str, written_id: str | None = None) -> int:
        """Begin a call; returns its index."""
        return self.emitter.start(self.ids.take(name, written_id), name)

    def whole(self, name: str, arguments: str, written_id: str | None = None) -> None:
        """A call whose arguments are known."""
        self.emitter.whole(self.ids.take(name, written_id), name, arguments)
