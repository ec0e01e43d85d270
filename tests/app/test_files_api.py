import http.client
import json
from contextlib import closing

import httpx
import openai
import pytest

from tests.app.conftest import Serve
from tests.app.fakes import FakeService


def test_a_file_goes_in_and_out_through_openais_client(client: httpx.Client) -> None:
    ai = openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", http_client=client)
    made = ai.files.create(file=("leave.md", b"# Leave\n25 days."), purpose="assistants")
    assert (made.filename, made.bytes, made.status) == ("leave.md", 16, "uploaded")
    assert [file.id for file in ai.files.list()] == [made.id]
    assert ai.files.retrieve(made.id) == made
    assert ai.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        ai.files.retrieve(made.id)


def test_a_new_version_names_the_one_it_replaces(client: httpx.Client, service: FakeService) -> None:
    old = client.post("/v1/files", files={"file": ("a.md", b"old")}).json()["id"]
    content = b"x" * (5 << 20)  # more than any other body may have
    new = client.put(f"/v1/files/{old}", files={"file": ("a.md", content)}).json()
    assert (new["kvfuse"]["replaces"], service.contents[new["id"]]) == (old, content)
    assert client.put("/v1/files/file-none", files={"file": ("a.md", b"x")}).status_code == 404


def test_the_text_that_offsets_count_in(client: httpx.Client) -> None:
    id = client.post("/v1/files", files={"file": ("a.md", "Über 日本".encode())}).json()["id"]
    answer = client.get(f"/v1/files/{id}/content")
    assert (answer.text, answer.headers["content-type"]) == ("Über 日本", "text/plain; charset=utf-8")
    assert client.get("/v1/files/file-none/content").status_code == 404


def test_a_failed_file_is_tried_again(client: httpx.Client, service: FakeService) -> None:
    id = client.post("/v1/files", files={"file": ("a.md", b"text")}).json()["id"]
    assert client.post(f"/v1/files/{id}/retry").json()["id"] == id
    assert service.retried == [id]
    assert client.post("/v1/files/file-none/retry").status_code == 404


def test_content_arrives_unchanged(client: httpx.Client, service: FakeService) -> None:
    content = bytes(range(256)) * 9000
    id = client.post("/v1/files", files={"file": ("a.bin", content)}).json()["id"]
    assert service.contents[id] == content


def test_the_same_content_is_the_same_file(client: httpx.Client) -> None:
    ids = {client.post("/v1/files", files={"file": (name, b"same")}).json()["id"] for name in ("a.md", "b.md")}
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("offered", "shown"), [("../../etc/passwd", "passwd"), ("C:\\docs\\a.md", "a.md"), ("Über 日本.md", "Über 日本.md")]
)
def test_names_are_names_not_paths(client: httpx.Client, offered: str, shown: str) -> None:
    assert client.post("/v1/files", files={"file": (offered, b"x")}).json()["filename"] == shown


@pytest.mark.parametrize("name", ["a" * 256, "/"])
def test_bad_names_are_refused(client: httpx.Client, name: str) -> None:
    answer = client.post("/v1/files", files={"file": (name, b"x")})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "file"


def test_a_file_at_the_limit_passes_and_one_over_it_does_not(serve: Serve) -> None:
    client = serve(FakeService(), max_upload_bytes=1000)
    assert client.post("/v1/files", files={"file": ("a.md", b"x" * 1000)}).status_code == 200
    answer = client.post("/v1/files", files={"file": ("b.md", b"x" * 1001)})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert "1000 bytes" in answer.json()["error"]["message"]


def test_a_declared_length_over_the_limit_is_refused_unread(serve: Serve) -> None:
    service = FakeService()
    answer = serve(service, max_upload_bytes=1000).post("/v1/files", files={"file": ("a.md", b"x" * 50_000_000)})
    assert answer.status_code == 413
    assert not service.files


def test_a_body_without_length_is_refused_before_its_end(serve: Serve) -> None:
    service = FakeService()
    client = serve(service, max_upload_bytes=1000)
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=20)
    with closing(connection):
        connection.putrequest("POST", "/v1/files")
        connection.putheader("Content-Type", "multipart/form-data; boundary=cut")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        head = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="big.md"\r\n\r\n'
        for chunk in (head, b"x" * 100_000):  # and never the last one
            connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        answer = connection.getresponse()
        assert answer.status == 413
        assert json.load(answer)["error"]["code"] == "request_too_large"
    assert not service.files


@pytest.mark.parametrize(
    "request_parts",
    [
        {"files": {"other": ("a.md", b"x")}},
        {"data": {"file": "text, not a file"}},
        {"json": {"file": "x"}},
        {"content": b"plain", "headers": {"Content-Type": "text/plain"}},
        {"content": b"junk", "headers": {"Content-Type": "multipart/form-data; boundary=b"}},
        {"content": b"junk", "headers": {"Content-Type": "multipart/form-data"}},
        {"files": [("file", ("a.md", b"x")), ("file", ("b.md", b"x"))]},
        {},
    ],
    ids=["other field", "text field", "json", "text", "junk", "no boundary", "two files", "nothing"],
)
def test_what_is_no_upload_is_refused(client: httpx.Client, service: FakeService, request_parts: dict) -> None:
    answer = client.post("/v1/files", **request_parts)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not service.files


def test_unknown_files_are_named(client: httpx.Client) -> None:
    for answer in (client.get("/v1/files/file-none"), client.delete("/v1/files/file-none")):
        assert answer.status_code == 404
        assert "file-none" in answer.json()["error"]["message"]
