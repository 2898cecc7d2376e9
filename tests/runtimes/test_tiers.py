"""Whatever comes, is lost or arrives late between the live cache, host memory and the disk: every
sequence holds the tokens it should, every request ends, and nothing leaks."""

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.base import Cut
from tests.runtimes.ledger import Ledger, ledger
from tests.runtimes.tiers import Tiers


@dataclass(frozen=True)
class Kind:
    """A kind of memory, and where it can go."""

    cut: Cut
    piece: int = 64
    park_cells: int = 0
    disk: bool = True
    host_bytes: int = 20_000
    dense: bool = False

    def ledger(self) -> Ledger:
        return ledger(
            self.cut,
            cells=900,
            sequences=7,
            piece=self.piece,
            checkpoints=self.cut is not Cut.ANY,
            park_cells=self.park_cells,
            idle_cells=32,
            dense=self.dense,
        )


KINDS = {
    "attention": Kind(Cut.ANY),
    "attention, parked": Kind(Cut.ANY, park_cells=700),
    "attention, dense": Kind(Cut.ANY, dense=True),
    "attention, no disk": Kind(Cut.ANY, disk=False, host_bytes=6_000),
    "attention, no host": Kind(Cut.ANY, host_bytes=0),
    "attention, parked only": Kind(Cut.ANY, piece=0, park_cells=700),
    "window": Kind(Cut.WINDOW),
    "window, parked, no disk": Kind(Cut.WINDOW, park_cells=700, disk=False),
    "recurrent": Kind(Cut.NONE, piece=0),
    "recurrent, parked": Kind(Cut.NONE, piece=0, park_cells=700),
    "hybrid": Kind(Cut.NONE),
    "hybrid, no host": Kind(Cut.NONE, host_bytes=0),
    "hybrid, parked, no disk": Kind(Cut.NONE, park_cells=700, disk=False),
}


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def test_ten_thousand_random_things_leave_every_sequence_as_it_should_be(
    kind: Kind, tmp_path: Path
) -> None:
    tiers = Tiers(kind.ledger(), tmp_path if kind.disk else None, kind.host_bytes, seed=20)
    for number in range(10_000):
        tiers.act()
        if number % 2500 == 2499:
            tiers.restart()
    tiers.finish()
    assert tiers.done > 500
    assert not [t for t in threading.enumerate() if t.name == "kv-disk"]
    if kind.piece or kind.cut is not Cut.ANY:
        assert tiers.restored > 20


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 32), things=st.integers(20, 150))
def test_so_does_any_other_course_of_things(
    kind: Kind, tmp_path_factory: pytest.TempPathFactory, seed: int, things: int
) -> None:
    folder = tmp_path_factory.mktemp("kv") if kind.disk else None
    tiers = Tiers(kind.ledger(), folder, kind.host_bytes, seed)
    for _ in range(things):
        tiers.act()
    tiers.finish()
