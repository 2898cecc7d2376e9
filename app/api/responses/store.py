"""Responses of the last hour, in memory alone, so that a client can refer to them by id."""

import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from app.api.parts import JSON
from models.errors import RequestInvalid

KEPT_S = 3600.0
MAX_RESPONSES = 2000
MAX_BYTES = 64 << 20


class PreviousNotFound(RequestInvalid):
    """The response to continue is not, or no longer, in memory."""

    code = "previous_response_not_found"

    def __init__(self, id: str) -> None:
        super().__init__(
            f"Previous response with id '{id[:100]}' not found. Responses are kept in memory for "
            f"{KEPT_S / 60:.0f} minutes after their last use; send the conversation as input.",
            "previous_response_id",
        )


@dataclass(frozen=True, slots=True)
class Stored:
    """A response as it was sent, and the input items that were its own."""

    response: JSON
    items: tuple[JSON, ...]
    previous: str | None = None

    @property
    def all_items(self) -> tuple[JSON, ...]:
        return (*self.items, *self.response["output"])


@dataclass(slots=True)
class _Place:
    stored: Stored
    num_bytes: int
    used_at: float = 0.0


class ResponseStore:
    """Forgets what was not used for an hour, and the least recently used beyond its limits.

    Whoever uses a response uses those it continues, after it: so these are always the more recent,
    and nothing loses its beginning but by `forget`."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock
        self._max_responses, self._max_bytes = max_responses, max_bytes
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._items: dict[str, tuple[str, JSON]] = {}
        self._num_bytes = 0

    def put(self, stored: Stored) -> None:
        """Keep a response; one that is larger than all there is room for is not."""
        num_bytes = len(json.dumps([stored.response, stored.items]))
        if num_bytes > self._max_bytes:
            return
        id = stored.response["id"]
        self._places[id] = _Place(stored, num_bytes)
        self._num_bytes += num_bytes
        self._items.update((item["id"], (id, item)) for item in stored.all_items)
        self._use(id)
        self._tidy()

    def get(self, id: str) -> Stored | None:
        """A response that is still here."""
        self._tidy()
        place = self._places.get(id)
        return place.stored if place else None

    def forget(self, id: str) -> bool:
        """Whether there was such a response; now there is none."""
        self._tidy()
        if id not in self._places:
            return False
        self._discard(id)
        return True

    def context(self, id: str) -> list[JSON]:
        """All items from the conversation's beginning up to the end of this response.

        Raises PreviousNotFound."""
        self._tidy()
        self._use(id)
        found: list[JSON] = []
        at: str | None = id
        while at is not None:
            if (place := self._places.get(at)) is None:
                raise PreviousNotFound(at)
            found[:0] = place.stored.all_items
            at = place.stored.previous
        return found

    def item(self, id: str) -> JSON | None:
        """An item of a response that is still here, or of its input."""
        self._tidy()
        owner, item = self._items.get(id, (None, None))
        if owner is not None:
            self._use(owner)
        return item

    def _use(self, id: str) -> None:
        at: str | None = id
        while at is not None and (place := self._places.get(at)):
            place.used_at = self._clock()
            self._places.move_to_end(at)
            at = place.stored.previous

    def _tidy(self) -> None:
        limit = self._clock() - KEPT_S
        while self._places:
            id, oldest = next(iter(self._places.items()))
            crowded = len(self._places) > self._max_responses or self._num_bytes > self._max_bytes
            if not crowded and oldest.used_at > limit:
                return
            self._discard(id)

    def _discard(self, id: str) -> None:
        place = self._places.pop(id)
        self._num_bytes -= place.num_bytes
        for item in place.stored.all_items:
            if self._items.get(item["id"], ("",))[0] == id:
                del self._items[item["id"]]
