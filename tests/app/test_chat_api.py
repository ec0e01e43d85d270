import asyncio
import json

import httpx
import openai
import pytest

from app.errors import ContextTooLong, NotReady
from app.service_api import AnswerDone, ChatMessage, TextDelta
from tests.app.conftest import Serve
from tests.app.fakes import DONE, HELLO, FakeService

QUESTION = {"messages": [{"role": "user", "content": "How many days?"}]}
PATH = "/v1/chat/completions"


def chunks(body: str) -> list[dict]:
    """Payloads of a stream of server-sent events, whose form is checked on the way."""
    *events, end, rest = body.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_a_whole_answer(client: httpx.Client) -> None:
    answer = client.post(PATH, json=QUESTION | {"model": "fake-model"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["object"], body["model"]) == ("chat.completion", "fake-model")
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hello"}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 120,
        "completion_tokens": 2,
        "total_tokens": 122,
        "prompt_tokens_details": {"cached_tokens": 90},
    }
    assert body["kvfuse"] == DONE.kvfuse


def test_a_streamed_answer(client: httpx.Client) -> None:
    answer = client.post(PATH, json=QUESTION | {"stream": True, "stream_options": {"include_usage": True}})
    assert answer.headers["content-type"].startswith("text/event-stream")
    first, *texts, last, usage = chunks(answer.text)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["delta"] for chunk in texts] == [{"content": "Hel"}, {"content": "lo"}]
    assert (last["choices"][0]["finish_reason"], last["choices"][0]["delta"]) == ("stop", {})
    assert last["kvfuse"] == DONE.kvfuse
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 90
    assert {chunk["id"] for chunk in (first, *texts, last, usage)} == {first["id"]}
    assert {chunk["object"] for chunk in (first, *texts, last, usage)} == {"chat.completion.chunk"}


def test_usage_comes_only_when_asked_for(client: httpx.Client) -> None:
    assert all("usage" not in chunk for chunk in chunks(client.post(PATH, json=QUESTION | {"stream": True}).text))


def test_openais_client_reads_both_forms(client: httpx.Client) -> None:
    ai = openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", http_client=client)
    ask = {"model": ai.models.list().data[0].id, "messages": QUESTION["messages"]}
    whole = ai.chat.completions.create(**ask)
    assert whole.choices[0].message.content == "Hello"
    assert whole.usage.prompt_tokens_details.cached_tokens == 90
    assert whole.model_extra["kvfuse"]["policy"] == "boundary"
    stream = list(ai.chat.completions.create(**ask, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello"


def test_options_reach_the_service(client: httpx.Client, service: FakeService) -> None:
    options = {
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "many?"}]},
        ],
        "max_tokens": 9,
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "stop": "\n",
        "frequency_penalty": 0.0,
        "kvfuse": {"policy": "full", "boundary_tokens": 0, "top_k": 2, "document_ids": ["file-1"]},
    }
    assert client.post(PATH, json=options).status_code == 200
    [request] = service.requests
    assert request.messages == (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "Hello"),
        ChatMessage("user", "How many?"),
    )
    assert (request.max_tokens, request.temperature, request.top_p, request.seed) == (7, 0.5, 0.9, 3)
    assert (request.stop, request.policy, request.boundary_tokens) == (("\n",), "full", 0)
    assert (request.top_k, request.document_ids) == (2, ("file-1",))


def test_absent_options_are_left_to_the_service(client: httpx.Client, service: FakeService) -> None:
    client.post(PATH, json=QUESTION)
    [request] = service.requests
    assert (request.max_tokens, request.policy, request.boundary_tokens) == (None, None, None)
    assert (request.top_k, request.document_ids, request.stop) == (None, None, ())


def test_requests_with_one_client_id_stay_apart(client: httpx.Client, service: FakeService) -> None:
    for _ in range(2):
        client.post(PATH, json=QUESTION, headers={"X-Request-Id": "same"})
    assert len({request.request_id for request in service.requests}) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_named(client: httpx.Client, stream: bool) -> None:
    answer = client.post(PATH, json=QUESTION | {"model": "gpt-9", "stream": stream})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "gpt-9" in error["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, None),
        ({"messages": [{"role": "user", "content": " \n"}]}, None),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"kvfuse": {"policy": "magic"}}, "kvfuse.policy"),
        ({"kvfuse": {"top_k": 0}}, "kvfuse.top_k"),
        ({"kvfuse": {"topk": 3}}, "kvfuse.topk"),
        ({"kvfuse": {"boundary_tokens": -1}}, "kvfuse.boundary_tokens"),
        ({"kvfuse": {"document_ids": []}}, "kvfuse.document_ids"),
    ],
)
def test_bad_bodies_name_the_field(client: httpx.Client, service: FakeService, change: dict, param: str | None) -> None:
    answer = client.post(PATH, json=QUESTION | change)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] is None if param is None else error["param"].startswith(param)
    assert not service.requests


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"messages": NaN}'])
def test_what_is_no_json_object_is_refused(client: httpx.Client, content: bytes) -> None:
    answer = client.post(PATH, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_huge_body_is_refused(client: httpx.Client) -> None:
    answer = client.post(PATH, json={"messages": [{"role": "user", "content": "x" * 5_000_000}]})
    assert answer.status_code == 413


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextTooLong("9000 tokens, the limit is 8192", param="messages"), 400, "context_length_exceeded"),
        (NotReady("The engine stopped"), 503, "not_ready"),
        (ZeroDivisionError("secret detail"), 500, "internal_error"),
    ],
)
def test_errors_before_text_are_plain_http(
    serve: Serve, stream: bool, error: Exception, status: int, code: str
) -> None:
    answer = serve(FakeService([error])).post(PATH, json=QUESTION | {"stream": stream})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_an_error_after_text_ends_the_stream_with_an_error_event(serve: Serve) -> None:
    client = serve(FakeService([TextDelta("Hel"), ZeroDivisionError("secret detail")]))
    answer = client.post(PATH, json=QUESTION | {"stream": True})
    assert answer.status_code == 200
    assert chunks(answer.text)[-1]["error"]["code"] == "internal_error"
    assert "secret" not in answer.text


def test_an_answer_has_a_deadline(serve: Serve) -> None:
    service = FakeService([TextDelta("Hel"), asyncio.Event().wait, *HELLO])
    client = serve(service, request_timeout_s=0.1)
    answer = client.post(PATH, json=QUESTION)
    assert answer.status_code == 504
    assert "0.1 s" in answer.json()["error"]["message"]
    streamed = client.post(PATH, json=QUESTION | {"stream": True})
    assert chunks(streamed.text)[-1]["error"]["code"] == "request_timeout"
    assert service.cleaned_up.is_set()


@pytest.mark.parametrize("before", [(), (TextDelta("Hel"),)], ids=["before text", "after text"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_generation(
    serve: Serve, stream: bool, before: tuple[TextDelta, ...]
) -> None:
    reached = asyncio.Event()
    released = asyncio.Event()

    async def stuck() -> None:
        reached.set()
        await released.wait()

    service = FakeService([*before, stuck, *HELLO])
    client = serve(service)
    async with httpx.AsyncClient(base_url=client.base_url, trust_env=False) as leaving:
        request = asyncio.create_task(leaving.post(PATH, json=QUESTION | {"stream": stream}))
        while not reached.is_set():
            await asyncio.sleep(0.01)
        request.cancel()
    while not service.cleaned_up.is_set():  # never set: the suite's time limit ends the test
        await asyncio.sleep(0.01)
    assert not released.is_set()
    assert client.post("/v1/files", files={"file": ("a.md", b"x")}).status_code == 200


def test_a_second_answer_follows_a_first(client: httpx.Client) -> None:
    answers = [client.post(PATH, json=QUESTION).json()["choices"][0]["message"]["content"] for _ in range(2)]
    assert answers == ["Hello", "Hello"]


def test_an_answer_cut_by_length_says_so(serve: Serve) -> None:
    done = AnswerDone("length", 1, 1, 0, {})
    body = serve(FakeService([TextDelta("x"), done])).post(PATH, json=QUESTION).json()
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("content", ["caf\ud800", [{"type": "text", "text": "ok"}, {"type": "text", "text": "\udc00"}]])
def test_half_a_surrogate_pair_is_refused_by_name(client: httpx.Client, service: FakeService, content: object) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": content}]})  # escaped: the bytes are plain ASCII
    answer = client.post(PATH, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "half a surrogate pair" in error["message"]
    assert error["param"] == "messages.0.content"
    assert not service.requests
