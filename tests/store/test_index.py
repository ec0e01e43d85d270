import math
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from store.chunk import KVChunk
from store.index import Index, Sighting
from store.index_schema import FILE_NAME
from store.keys import ChunkKey, chunk_key
from store.marks import Marks
from store.policy import Use, gdsf, lru, make_policy, policy_names
from store.tally import Tally

KEYS = [chunk_key("f" * 64, "", [token]) for token in range(6)]
Seen = Callable[..., Sighting]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path, lru, Tally())


@pytest.fixture
def seen(make_chunk: Callable[..., KVChunk]) -> Seen:
    """A sighting of the chunk `seed`; 1 MB unless told."""

    def sighting(seed: int, tier: str = "disk", size: int = 1_000_000, now: float = 0.0, **fields: float) -> Sighting:
        return Sighting(make_chunk(seed=seed).info("raw"), tier, size, fields.pop("saved_s", 1.0), now, **fields)  # type: ignore[arg-type]

    return sighting


def key_of(sighting: Sighting) -> ChunkKey:
    return sighting.info.key


def test_totals_follow_what_comes_and_goes(index: Index, seen: Seen) -> None:
    index.see(seen(1), seen(2), seen(1, "memory"))
    index.see(seen(1, size=500_000))
    assert index.totals() == {"disk": (2, 1_500_000), "memory": (1, 1_000_000)}
    index.removed(key_of(seen(1)), "disk")
    index.removed(key_of(seen(1)), "disk")
    assert index.totals()["disk"] == (1, 1_000_000)
    assert index.used_bytes("remote") == 0


def test_uses_add_up(index: Index, seen: Seen) -> None:
    index.see(seen(1, now=10))
    for now in (30.0, 20.0):
        index.note(seen(1, now=now, hits=1, seconds_saved=0.5))
    assert index.records([key_of(seen(1))])[0].hits == 0
    index.flush()
    (record,) = index.records([key_of(seen(1))])
    assert (record.hits, record.seconds_saved, record.created, record.last_used) == (2, 1.0, 10, 30)
    assert record.places == {"disk": 1_000_000}


def test_a_use_of_a_chunk_deleted_meanwhile_does_not_bring_it_back(index: Index, seen: Seen) -> None:
    index.see(seen(1))
    index.note(seen(1, hits=1))
    index.forget([key_of(seen(1))])
    index.flush()
    assert index.records([key_of(seen(1))]) == []
    assert index.totals()["disk"] == (0, 0)


def test_lru_gives_up_the_longest_unused(index: Index, seen: Seen) -> None:
    index.see(*(seen(seed, now=100 + seed) for seed in range(4)))
    index.see(seen(0, now=200, hits=1))
    assert [entry.key for entry in index.coldest("disk", 2)] == [key_of(seen(1)), key_of(seen(2))]


def test_gdsf_weighs_frequency_cost_and_size(tmp_path: Path, seen: Seen) -> None:
    index = Index(tmp_path, gdsf, Tally())
    index.see(seen(0, hits=5), seen(1, hits=1), seen(2, hits=5, size=10_000_000), seen(3, hits=1, saved_s=20.0))
    order = [entry.key for entry in index.coldest("disk", 9)]
    assert order == [key_of(seen(seed)) for seed in (2, 1, 0, 3)]


def test_gdsf_gives_a_new_chunk_a_chance(tmp_path: Path, seen: Seen) -> None:
    index = Index(tmp_path, gdsf, Tally())
    index.see(seen(0), seen(1, saved_s=0.5))
    index.age(key_of(seen(0)), "disk")
    index.see(seen(2))
    assert [entry.key for entry in index.coldest("disk", 9)] == [key_of(seen(seed)) for seed in (1, 0, 2)]


def test_many_records_at_once(index: Index) -> None:
    keys = [chunk_key("f" * 64, "many", [token]) for token in range(1200)]
    for key in keys[::2]:
        index.copied(key, "disk", 10)
    assert [record.key for record in index.records(keys)] == keys[::2]


def test_gdsf_ages_what_was_popular_once(tmp_path: Path, seen: Seen) -> None:
    index = Index(tmp_path, gdsf, Tally())
    index.see(seen(0, hits=8), seen(1, hits=9))
    index.age(key_of(seen(0)), "disk")  # the clock is 9 now
    index.see(seen(2, hits=2))
    assert [entry.key for entry in index.coldest("disk", 9)] == [key_of(seen(seed)) for seed in (0, 1, 2)]


def test_policies_by_name() -> None:
    assert policy_names() == ("lru", "gdsf")
    assert make_policy("gdsf")(Use(now=5, clock=1, hits=2, saved_s=3, bytes=1_000_000)) == 10
    with pytest.raises(ValueError, match="'fifo': expected one of lru, gdsf"):
        make_policy("fifo")


def test_pins_keep_chunks_out_of_the_cold(index: Index, seen: Seen) -> None:
    marks = Marks(index.database)
    index.see(*(seen(seed, now=seed) for seed in range(3)))
    marks.pin([key_of(seen(0))])
    with marks.pinned([key_of(seen(1))]):
        assert [entry.key for entry in index.coldest("disk", 9)] == [key_of(seen(2))]
        assert [entry.key for entry in index.idle("disk", 10, 9)] == [key_of(seen(2))]
        assert index.records([key_of(seen(0))])[0].pinned_until == math.inf
        assert marks.pins() == 2
    assert [entry.key for entry in index.coldest("disk", 9)] == [key_of(seen(1)), key_of(seen(2))]
    marks.unpin([key_of(seen(0))])
    assert marks.pins() == 0


def test_pins_end_by_themselves(index: Index) -> None:
    marks = Marks(index.database)
    marks.pin(KEYS[:1], ttl_s=0.05)
    marks.pin(KEYS[:1], ttl_s=0.01)
    assert marks.is_pinned(KEYS[0])
    time.sleep(0.06)
    assert not marks.is_pinned(KEYS[0])


def test_tags_name_groups(index: Index) -> None:
    marks = Marks(index.database)
    marks.tag(KEYS[:3], "session 7")
    marks.untag(KEYS[:1], "session 7")
    assert set(marks.tagged("session 7")) == set(KEYS[1:3])
    with pytest.raises(ValueError, match="expected 1 to 200 printable characters"):
        marks.tag(KEYS, "a\nb")


def test_appointments_are_kept_once(index: Index) -> None:
    marks = Marks(index.database)
    marks.appoint(KEYS[:2], "demote", "disk", 0)
    marks.appoint(KEYS[:1], "demote", "disk", 3600)
    assert [due.key for due in marks.take_due()] == [KEYS[1]]
    assert marks.take_due() == []


def test_purging_keeps_what_is_stored_or_marked(index: Index, seen: Seen) -> None:
    index.see(*(seen(seed) for seed in range(3)))
    Marks(index.database).tag([key_of(seen(1))], "kept")
    for seed in (0, 1):
        index.removed(key_of(seen(seed)), "disk")
    assert index.purge() == 1
    assert {record.key for record in index.records([key_of(seen(seed)) for seed in range(3)])} == {
        key_of(seen(1)),
        key_of(seen(2)),
    }


def test_pages_go_by_key(index: Index, seen: Seen) -> None:
    index.see(*(seen(seed, "memory" if seed % 2 else "disk") for seed in range(6)))
    keys = sorted(key_of(seen(seed)) for seed in range(6))
    first = index.page(None, "", 4)
    assert [record.key for record in first] == keys[:4]
    assert [record.key for record in index.page(None, first[-1].key, 4)] == keys[4:]
    assert {record.key for record in index.page("memory", "", 9)} == {key_of(seen(seed)) for seed in (1, 3, 5)}


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b""])
def test_a_damaged_file_is_replaced(tmp_path: Path, seen: Seen, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    index = Index(tmp_path, lru, Tally())
    assert index.database.take_fresh()
    assert not index.database.private
    index.see(seen(1))
    assert not Index(tmp_path, lru, Tally()).database.take_fresh()


def test_damage_during_work_is_survived(tmp_path: Path, seen: Seen) -> None:
    tally = Tally()
    index = Index(tmp_path, lru, tally)
    index.see(*(seen(seed) for seed in range(5)))
    index.database.write(("PRAGMA wal_checkpoint(TRUNCATE)", [()]))
    index.close()
    file = tmp_path / FILE_NAME
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 8192)
    again = Index(tmp_path, lru, tally)
    again.totals()
    again.see(seen(9))
    again.see(seen(9))
    assert again.used_bytes("disk") == 1_000_000
    assert tally["index_errors"] > 0


def test_another_schema_version_is_replaced(tmp_path: Path) -> None:
    Index(tmp_path, lru, Tally()).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert Index(tmp_path, lru, Tally()).database.take_fresh()


def test_a_file_removed_under_way_is_made_again(tmp_path: Path, index: Index, seen: Seen) -> None:
    index.see(seen(1))
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        path.unlink()
    index.see(seen(2))
    assert index.totals() == {"disk": (1, 1_000_000)}
    assert (tmp_path / FILE_NAME).exists()


def test_no_place_for_the_file(tmp_path: Path, seen: Seen) -> None:
    tally = Tally()
    index = Index(tmp_path / "missing", lru, tally)
    index.see(seen(1))
    assert index.database.private
    assert index.used_bytes("disk") == 1_000_000
    assert tally["index_errors"] > 0


def test_processes_share_it(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom store.index import Index\nfrom store.policy import lru\n"
        "from store.tally import Tally\nfrom store.marks import Marks\nfrom store.keys import chunk_key\n"
        "tally = Tally()\nindex = Index(Path(sys.argv[1]), lru, tally)\nmarks = Marks(index.database)\n"
        "for token in range(100):\n    key = chunk_key('f' * 64, sys.argv[2], [token])\n"
        "    index.copied(key, 'disk', 10)\n    marks.pin([key])\n    marks.unpin([key])\n"
        "assert tally['index_errors'] == 0, tally.snapshot()\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    index = Index(tmp_path, lru, Tally())
    assert index.totals() == {"disk": (300, 3000)}
    assert Marks(index.database).pins() == 0
