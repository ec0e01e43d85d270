"""The cache's verbs over real HTTP and on the command line, over a real store."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import create_async_engine

from app import cli
from app.cache import VERBS
from app.config import load_settings
from app.schemas.cache import Verb
from cascade import schema
from cascade.types import Passage
from store import KVChunk, KVDType, KVLayout, TieredStore, chunk_key
from tests.app.conftest import running
from tests.app.fakes import FakeService

FINGERPRINT = "f" * 64
LAYOUT = KVLayout(layers=1, kv_heads=1, head_dim=8, dtype=KVDType.BF16)


def chunk(seed: int) -> KVChunk:
    data = np.random.default_rng(seed).integers(0, 1 << 16, (1, 2, 1, 32, 8)).astype(np.uint16)
    return KVChunk(chunk_key(FINGERPRINT, "", [seed]), FINGERPRINT, LAYOUT, 0, data)


def passage(document_id: str, ordinal: int, seed: int) -> Passage:
    return Passage(f"{document_id}-{ordinal}", document_id, ordinal, "", "text", 0, 4, (seed,), chunk(seed).key)


@pytest.fixture
def service() -> FakeService:
    """Document A has the chunks 0 and 1, B has 1 and 2 and one that was never stored."""
    service = FakeService()
    for seed in range(3):
        service.store.put(chunk(seed))
    service.catalog.passages = {
        "A": [passage("A", 0, 0), passage("A", 1, 1)],
        "B": [passage("B", 0, 1), passage("B", 1, 2), passage("B", 2, 3)],
    }
    return service


@pytest.fixture
def http(service: FakeService, tmp_path: Path) -> Iterator[httpx.Client]:
    with running(service, tmp_path) as url, httpx.Client(base_url=url, trust_env=False) as client:
        yield client


def act(http: httpx.Client, verb: str, **body: Any) -> Any:
    answer = http.post(f"/v1/cache/{verb}", json=body)
    answer.raise_for_status()
    return answer.json()


def test_documents_sink_and_come_back(http: httpx.Client, service: FakeService) -> None:
    report = act(http, "demote", documents=["A"])
    assert report["counts"] == {"done": 2}
    assert report["bytes"] > 0
    usage = http.get("/v1/cache/documents/A").json()
    assert (usage["passages"], usage["stored"], usage["tiers"]) == (2, 2, {"disk": 2})
    assert usage["raw_bytes"] == 2 * chunk(0).raw_bytes
    usage = http.get("/v1/cache/documents/B").json()
    assert (usage["passages"], usage["stored"], usage["tiers"]) == (3, 2, {"disk": 1, "memory": 1})
    act(http, "promote", documents=["A"], ttl_s=60)
    assert {row["id"]: row["pinned"] for row in http.get("/v1/cache/documents").json()["data"]} == {"A": 2, "B": 1}
    assert act(http, "evict", documents=["B"])["counts"] == {"pinned": 1, "done": 1, "absent": 1}
    overview = http.get("/v1/cache").json()
    assert (overview["pins"], overview["tiers"]["memory"]["chunks"]) == (2, 2)
    assert (overview["contents"]["chunks"], overview["contents"]["raw_bytes"]) == (2, 2 * chunk(0).raw_bytes)
    assert overview["break_even"]["disk"] == {
        "load_tokens_per_s": None,
        "prefill_tokens_per_s": 1000.0,
        "worth_loading": True,
        "loaded": 0,
        "computed": 0,
    }


def test_hits_and_seconds_saved_add_up(http: httpx.Client, service: FakeService) -> None:
    assert service.store.open(chunk(0).key, FINGERPRINT) is not None
    usage = http.get("/v1/cache/documents/A").json()
    assert usage["hits"] == 1
    assert usage["seconds_saved"] == pytest.approx(32 / 1000)


def test_groups(http: httpx.Client) -> None:
    act(http, "tag", documents=["A"], tag="session-1")
    assert act(http, "lookup", tags=["session-1"])["tiers"] == {chunk(0).key: "memory", chunk(1).key: "memory"}
    act(http, "demote", tags=["session-1"], dry_run=True)
    assert set(act(http, "lookup", tags=["session-1"])["tiers"].values()) == {"memory"}
    assert http.get(f"/v1/cache/chunks/{chunk(0).key}").json()["tags"] == ["session-1"]
    act(http, "untag", keys=[chunk(0).key, chunk(1).key], tag="session-1")
    assert act(http, "lookup", tags=["session-1"])["tiers"] == {}


def test_pages(http: httpx.Client) -> None:
    keys = sorted(chunk(seed).key for seed in range(3))
    page = http.get("/v1/cache/chunks", params={"limit": 2}).json()
    assert ([row["key"] for row in page["data"]], page["has_more"]) == (keys[:2], True)
    page = http.get("/v1/cache/chunks", params={"limit": 2, "after": keys[1]}).json()
    assert ([row["key"] for row in page["data"]], page["has_more"]) == (keys[2:], False)


def test_upkeep(http: httpx.Client, service: FakeService) -> None:
    assert act(http, "verify", documents=["A"])["counts"] == {"done": 2}
    assert act(http, "rebuild-index")["count"] == 6
    act(http, "evict", documents=["A"])
    assert act(http, "purge")["count"] == 2


@pytest.mark.parametrize(
    ("verb", "body", "status", "message"),
    [
        ("pin", {}, 400, "name documents, keys or tags"),
        ("pin", {"keys": ["abc"]}, 400, "expected 64 lowercase hex digits"),
        ("pin", {"documents": ["nope"]}, 404, "no such document: nope"),
        ("tag", {"documents": ["A"]}, 400, "expected 1 to 200 printable characters"),
        ("demote", {"documents": ["A"], "tier": "remote"}, 400, "expected one of memory, disk"),
        ("demote", {"documents": ["A"], "tier": "tape"}, 400, "tier"),
        ("melt", {"documents": ["A"]}, 400, "verb"),
    ],
)
def test_bad_requests(http: httpx.Client, verb: str, body: dict[str, Any], status: int, message: str) -> None:
    answer = http.post(f"/v1/cache/{verb}", json=body)
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True), answer.text


def test_every_verb_has_a_route() -> None:
    assert get_args(Verb) == tuple(VERBS)


def test_metrics_tell_of_the_store(http: httpx.Client, service: FakeService) -> None:
    service.store.open(chunk(0).key, FINGERPRINT)
    service.store.open(chunk(9).key, FINGERPRINT)
    text = http.get("/metrics").text
    for line in (
        'kvfuse_store_lookups_total{result="hit",tier="memory"} 1.0',
        'kvfuse_store_lookups_total{result="miss",tier="none"} 1.0',
        'kvfuse_store_misses_total{reason="absent"} 1.0',
        'kvfuse_store_chunks{tier="disk"} 3.0',
        "kvfuse_store_evictions_total 0.0",
        'kvfuse_store_events_total{event="promotions"} 0.0',
        'kvfuse_store_bytes_total{op="read",tier="disk"} 0.0',
        'kvfuse_store_worth_loading{tier="disk"} 1.0',
        'kvfuse_store_decisions_total{decision="compute",tier="memory"} 0.0',
        "kvfuse_store_prefill_tokens_per_second 1000.0",
        f'kvfuse_store_backend{{backend="software",reason="{service.store.stats().backend_reason}"}} 1.0',
    ):
        assert line in text
    assert "kvfuse_store_used_bytes" in text
    assert "kvfuse_store_codec_seconds_total" in text


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """``kvfuse cache ...`` in this process, over a home with a catalogue and a store."""
    asyncio.run(_catalogue(tmp_path))
    settings = load_settings(home=tmp_path, memory_dir=tmp_path / "memory")
    with TieredStore(settings.store_config()) as store:
        for seed in range(3):
            store.put(chunk(seed))

    def start(*arguments: str) -> tuple[int, str, str]:
        options = ("--home", str(tmp_path), "--memory-dir", str(tmp_path / "memory"))
        monkeypatch.setattr(sys, "argv", ["kvfuse", "cache", *arguments, *options])
        monkeypatch.setattr(logging.root, "handlers", [])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        captured = capsys.readouterr()
        return int(exit.value.code or 0), captured.out, captured.err

    return start


async def _catalogue(home: Path) -> None:
    """Two ready documents, as ingest leaves them."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{home / 'catalog.sqlite'}")
    schema.configure_connections(engine.sync_engine)
    rows: dict[str, Any] = {"sha256": "", "title": "", "media_type": "text/plain", "bytes": 1, "text": "t"}
    rows |= {"stage": "ready", "created_at": 1, "updated_at": 1}
    async with engine.begin() as tx:
        await tx.run_sync(schema.metadata.create_all)
        for id, seeds in (("A", (0, 1)), ("B", (1, 2))):
            await tx.execute(insert(schema.documents).values(rows | {"id": id, "sha256": id, "filename": f"{id}.txt"}))
            for ordinal, seed in enumerate(seeds):
                await tx.execute(insert(schema.passages).values(_passage_row(id, ordinal, seed)))
    await engine.dispose()


def _passage_row(document_id: str, ordinal: int, seed: int) -> dict[str, Any]:
    row = vars(passage(document_id, ordinal, seed)) | {"token_ids": np.array([seed], "<u4").tobytes()}
    missing = [column.name for column in schema.passages.c if column.name not in row and not column.nullable]
    return row | dict.fromkeys(missing, b"")


def test_command_line(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("demote", "A")
    assert (code, json.loads(out)["counts"]) == (0, {"done": 2})
    code, out, _ = run("lookup", "A", chunk(2).key)
    assert json.loads(out)["tiers"] == {chunk(0).key: "disk", chunk(1).key: "disk", chunk(2).key: "memory"}
    code, out, _ = run("ls")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["id"], row["stored"], row["tiers"]) for row in rows] == [
        ("A", 2, {"disk": 2}),
        ("B", 2, {"disk": 1, "memory": 1}),
    ]
    assert run("tag", "cold", "A")[0] == 0
    code, out, _ = run("promote", "tag:cold", "--ttl", "3600")
    assert json.loads(out)["counts"] == {"done": 2}
    code, out, _ = run("stat", "A")
    assert [json.loads(line)["pinned"] for line in out.splitlines()] == [True, True]
    assert [run("unpin", "A")[0], run("pin", "B")[0], run("prefetch", "B", "--dry-run")[0]] == [0, 0, 0]
    code, out, _ = run("ls", "--chunks", "--limit", "1")
    assert len(out.splitlines()) == 1
    code, out, _ = run("verify", "B")
    assert json.loads(out)["counts"] == {"done": 2}
    assert json.loads(run("rebuild-index")[1])["count"] == 6
    assert json.loads(run("purge")[1])["count"] == 0


def test_the_whole_store_on_the_command_line(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, _ = run("stat")
    whole = json.loads(out)
    assert (code, whole["contents"]["chunks"], whole["tiers"]["disk"]["chunks"]) == (0, 3, 3)
    assert whole["break_even"]["memory"]["worth_loading"] is True
    code, out, err = run("verify")
    assert (code, json.loads(out)["counts"], "3/3" in err) == (0, {"done": 3}, True)
    damaged = tmp_path / "memory" / chunk(1).key[:2] / f"{chunk(1).key}.kvc"
    damaged.write_bytes(damaged.read_bytes()[:-1] + bytes([damaged.read_bytes()[-1] ^ 1]))
    code, out, _ = run("verify", "--dry-run")
    assert (code, json.loads(out)["corrupt"]) == (1, [chunk(1).key])
    code, out, _ = run("verify", "A")
    assert (code, json.loads(out)["counts"]) == (1, {"done": 1, "corrupt": 1})
    assert run("verify")[0] == 0


def test_command_line_mistakes(run: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = run("pin", "nope")
    assert (code, err.strip()) == (1, "kvfuse: no such document: nope")
    code, _, err = run("evict", "A", "--tier", "tape")
    assert (code, "expected one of memory, disk" in err) == (1, True)


def test_nothing_stored_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kvfuse", "cache", "ls", "--home", str(tmp_path / "new")])
    with pytest.raises(SystemExit):
        cli.main()
    assert "nothing is stored yet" in capsys.readouterr().err


def test_a_catalogue_of_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "catalog.sqlite").touch()
    monkeypatch.setattr(sys, "argv", ["kvfuse", "cache", "ls", "--home", str(tmp_path)])
    with pytest.raises(SystemExit):
        cli.main()
    assert "not a catalogue of this release (no such table: documents)" in capsys.readouterr().err
