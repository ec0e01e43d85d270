"""Vector stores over HTTP, on a real catalogue, through OpenAI's client too."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from cascade.types import MediaType, Passage, ScoredPassage
from tests.app.conftest import Serve
from tests.app.fakes import FakeService

PATH = "/v1/vector_stores"
Add = Callable[[str], str]


class Bench(FakeService):
    """Keeps the catalogue's event loop at hand, to add documents from a test."""

    async def start(self) -> None:
        await super().start()
        self.loop = asyncio.get_running_loop()

    def run(self, call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(20)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench, serve: Serve) -> httpx.Client:
    client = serve(bench)
    while client.get("/v1/files").status_code == 503:
        pass
    return client


@pytest.fixture
def add(bench: Bench, client: httpx.Client) -> Add:
    """Adds a document and gives its id."""
    return lambda text: bench.run(bench.documents.add(f"{text}.txt", text.encode(), MediaType.TEXT)).document.id


def found(document_id: str, text: str, similarity: float) -> ScoredPassage:
    passage = Passage(f"{document_id}-{text}", document_id, 2, "Title", text, 5, 9, (1, 2, 3), "k", 4, "A > B")
    return ScoredPassage(passage, 1.0, 0.5, 2.0, 1, {"maxsim": similarity})


def make(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_openais_client_goes_all_the_way(client: httpx.Client, bench: Bench, add: Add) -> None:
    ai = openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", http_client=client)
    file_id = add("leave")
    store = ai.vector_stores.create(name="harbour", file_ids=[file_id], metadata={"owner": "town"})
    assert (store.name, store.metadata, store.file_counts.in_progress) == ("harbour", {"owner": "town"}, 1)
    assert [each.id for each in ai.vector_stores.list()] == [store.id]
    assert ai.vector_stores.update(store.id, name="port").name == "port"
    ai.vector_stores.files.update(file_id, vector_store_id=store.id, attributes={"year": 2024, "kind": "rule"})
    (file,) = ai.vector_stores.files.list(store.id)
    assert (file.id, file.attributes) == (file_id, {"year": 2024, "kind": "rule"})
    bench.retriever.found = [found(file_id, "25 days", 0.7)]
    (result,) = ai.vector_stores.search(store.id, query="How many days?")
    assert (result.file_id, result.filename, result.score) == (file_id, "leave.txt", 0.7)
    assert result.content[0].text == "25 days"
    assert ai.vector_stores.files.delete(file_id, vector_store_id=store.id).deleted
    assert ai.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        ai.vector_stores.retrieve(store.id)


def test_a_result_says_where_it_stands(client: httpx.Client, bench: Bench, add: Add) -> None:
    file_id = add("leave")
    bench.retriever.found = [found(file_id, "25 days", 0.7)]
    page = client.post(f"{PATH}/{make(client, file_ids=[file_id])['id']}/search", json={"query": "days?"}).json()
    assert page["search_query"] == ["days?"]
    kvfuse = page["data"][0]["kvfuse"]
    assert {name: kvfuse[name] for name in ("page", "heading", "start", "end", "ordinal")} == {
        "page": 4,
        "heading": "A > B",
        "start": 5,
        "end": 9,
        "ordinal": 2,
    }
    assert kvfuse["scores"] == {"dense": 0.5, "sparse": 2.0, "maxsim": 0.7}


def test_filters_decide_what_is_searched(client: httpx.Client, bench: Bench, add: Add) -> None:
    store = make(client)["id"]
    ids = {name: add(name) for name in ("old", "new", "plain")}
    for name, attributes in {"old": {"year": 1990}, "new": {"year": 2024, "kind": "rule"}, "plain": {}}.items():
        client.post(f"{PATH}/{store}/files", json={"file_id": ids[name], "attributes": attributes})
    recent = {"type": "gt", "key": "year", "value": 2000}
    rule = {"type": "eq", "key": "kind", "value": "rule"}
    law = {"type": "in", "key": "kind", "value": ["law"]}
    filters = {"type": "or", "filters": [{"type": "and", "filters": [recent, rule]}, law]}
    assert client.post(f"{PATH}/{store}/search", json={"query": "q", "filters": filters}).status_code == 200
    assert bench.retriever.asked[-1] == ("q", frozenset({ids["new"]}))
    client.post(f"{PATH}/{store}/search", json={"query": "q"})
    assert bench.retriever.asked[-1] == ("q", frozenset(ids.values()))


def test_a_question_is_asked_of_vector_stores(client: httpx.Client, bench: Bench, add: Add) -> None:
    ids = {name: add(name) for name in ("old", "new", "elsewhere")}
    store, other = make(client)["id"], make(client, file_ids=[ids["elsewhere"]])["id"]
    for name, year in {"old": 1990, "new": 2024}.items():
        client.post(f"{PATH}/{store}/files", json={"file_id": ids[name], "attributes": {"year": year}})
    recent = {"type": "gt", "key": "year", "value": 2000}

    def asked(**body: Any) -> set[str] | None:
        question = {"messages": [{"role": "user", "content": "How many days?"}], **body}
        answer = client.post("/v1/chat/completions", json=question)
        assert answer.status_code == 200, answer.text
        chosen = bench.requests[-1].document_ids
        return None if chosen is None else set(chosen)

    assert asked() is None
    assert asked(kvfuse={"vector_store_ids": [store]}) == {ids["old"], ids["new"]}
    assert asked(kvfuse={"vector_store_ids": [store, other]}) == set(ids.values())
    assert asked(kvfuse={"vector_store_ids": [store], "filters": recent}) == {ids["new"]}
    assert asked(kvfuse={"vector_store_ids": [store], "document_ids": [ids["old"], ids["elsewhere"]]}) == {ids["old"]}
    tool = {"type": "file_search", "vector_store_ids": [store], "filters": recent, "max_num_results": 2}
    assert asked(tools=[tool]) == {ids["new"]}
    assert bench.requests[-1].top_k == 2
    assert asked(tools=[tool], kvfuse={"vector_store_ids": [other]}) == set()


@pytest.mark.parametrize(
    ("kvfuse", "status"),
    [({"vector_store_ids": ["vs-none"]}, 404), ({"filters": {"type": "eq", "key": "a", "value": 1}}, 400)],
)
def test_a_question_of_no_vector_store_is_refused(client: httpx.Client, kvfuse: dict[str, Any], status: int) -> None:
    question = {"messages": [{"role": "user", "content": "How many days?"}], "kvfuse": kvfuse}
    assert client.post("/v1/chat/completions", json=question).status_code == status


def test_files_go_in_together_or_not_at_all(client: httpx.Client, bench: Bench, add: Add) -> None:
    ai = openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", http_client=client)
    one, two, three = (add(name) for name in ("one", "two", "three"))
    store = make(client, file_ids=[three])["id"]
    batch = ai.vector_stores.file_batches.create(store, file_ids=[one, two], attributes={"year": 2024})
    assert (batch.status, batch.file_counts.in_progress, batch.file_counts.total) == ("in_progress", 2, 2)
    for id in (one, two):
        bench.run(bench.documents.fail(id, "is torn"))
    batch = ai.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store)
    assert (batch.status, batch.file_counts.failed) == ("completed", 2)
    files = list(ai.vector_stores.file_batches.list_files(batch.id, vector_store_id=store))
    assert {(file.id, file.attributes["year"]) for file in files if file.attributes} == {(one, 2024), (two, 2024)}
    own = {"files": [{"file_id": one, "attributes": {"year": 1}}, {"file_id": "file-none"}]}
    assert client.post(f"{PATH}/{store}/file_batches", json=own).status_code == 404
    assert client.get(f"{PATH}/{store}/files/{one}").json()["attributes"] == {"year": 2024}
    assert client.get(f"{PATH}/{store}/file_batches/vsfb-none").status_code == 404
    assert client.post(f"{PATH}/{store}/file_batches", json={}).status_code == 400


def test_several_queries_give_each_passage_once(client: httpx.Client, bench: Bench, add: Add) -> None:
    file_id = add("leave")
    store = make(client, file_ids=[file_id])["id"]
    bench.retriever.found = [found(file_id, "weak", 0.4), found(file_id, "strong", 0.8)]
    page = client.post(f"{PATH}/{store}/search", json={"query": ["one", "two"]}).json()
    assert [result["content"][0]["text"] for result in page["data"]] == ["strong", "weak"]
    few = client.post(f"{PATH}/{store}/search", json={"query": ["one", "two"], "max_num_results": 1}).json()
    assert len(few["data"]) == 1
    good = {"query": "one", "ranking_options": {"score_threshold": 0.5}}
    assert len(client.post(f"{PATH}/{store}/search", json=good).json()["data"]) == 1


def test_a_failed_file_says_why(client: httpx.Client, bench: Bench, add: Add) -> None:
    file_id = add("torn")
    store = make(client, file_ids=[file_id])["id"]
    bench.run(bench.documents.fail(file_id, "is torn"))
    file = client.get(f"{PATH}/{store}/files/{file_id}").json()
    assert (file["status"], file["last_error"]["message"]) == ("failed", "is torn")
    assert client.get(f"{PATH}/{store}").json()["file_counts"]["failed"] == 1


def test_what_is_not_there_is_named(client: httpx.Client, add: Add) -> None:
    file_id, store = add("text"), make(client)["id"]
    calls = [
        ("GET", f"{PATH}/vs-none", None, "vs-none"),
        ("POST", f"{PATH}/vs-none", {}, "vs-none"),
        ("DELETE", f"{PATH}/vs-none", None, "vs-none"),
        ("GET", f"{PATH}/vs-none/files", None, "vs-none"),
        ("POST", f"{PATH}/vs-none/files", {"file_id": file_id}, "vs-none"),
        ("POST", f"{PATH}/vs-none/search", {"query": "x"}, "vs-none"),
        ("POST", f"{PATH}/{store}/files", {"file_id": "file-none"}, "file-none"),
        ("GET", f"{PATH}/{store}/files/{file_id}", None, file_id),
        ("POST", f"{PATH}/{store}/files/{file_id}", {"attributes": {}}, file_id),
        ("DELETE", f"{PATH}/{store}/files/{file_id}", None, file_id),
        ("POST", PATH, {"file_ids": ["file-none"]}, "file-none"),
    ]
    for method, path, body, name in calls:
        answer = client.request(method, path, json=body)
        assert answer.status_code == 404, (method, path)
        assert name in answer.json()["error"]["message"]
    assert len(client.get(PATH).json()["data"]) == 1, "a store with an unknown file is not made"


@pytest.mark.parametrize(
    "body",
    [
        {"query": ""},
        {"query": []},
        {"query": "x", "max_num_results": 51},
        {"query": "x", "filters": {"type": "like", "key": "a", "value": "b"}},
        {"query": "x", "filters": {"type": "in", "key": "a", "value": "b"}},
        {"query": "x", "filters": {"type": "eq", "key": "a", "value": ["b"]}},
        {"query": "x", "filters": {"type": "and", "filters": []}},
    ],
)
def test_bad_searches_are_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = client.post(f"{PATH}/{make(client)['id']}/search", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_rerank_puts_texts_in_order(client: httpx.Client) -> None:
    body = {"query": "ferry captain", "documents": ["rye bread", {"text": "the ferry captain"}, "ferry"], "top_n": 2}
    answer = client.post("/v1/rerank", json=body).json()
    assert [result["index"] for result in answer["results"]] == [2, 1]
    assert answer["results"][1]["document"] == {"text": "the ferry captain"}
    assert answer["results"][0]["relevance_score"] == 1.0
    bare = client.post("/v1/rerank", json=body | {"return_documents": False}).json()
    assert bare["results"][0]["document"] is None
    assert client.post("/v1/rerank", json={"query": "x", "documents": []}).status_code == 400
