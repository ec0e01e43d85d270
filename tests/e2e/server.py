"""`kvfuse serve` as a process of its own, for tests that talk to it over HTTP."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

START_S = 300


@dataclass
class Server:
    """A running server and a client of it."""

    process: "subprocess.Popen[bytes]"
    client: httpx.Client
    log: Path

    def upload(self, name: str, content: bytes) -> httpx.Response:
        return self.client.post("/v1/files", files={"file": (name, content)})

    def wait(self, file_id: str, limit_s: float = 120) -> dict[str, Any]:
        """Wait until a file is processed or has failed."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            file: dict[str, Any] = self.client.get(f"/v1/files/{file_id}").json()
            if file["status"] != "uploaded":
                return file
            time.sleep(0.1)
        raise TimeoutError(f"{file_id} is still {file['status']} after {limit_s} s")

    def add(self, name: str, text: str) -> str:
        """Upload a document that must become ready; returns its id."""
        file = self.wait(self.upload(name, text.encode()).json()["id"])
        assert file["status"] == "processed", file
        return str(file["id"])

    def ask(self, question: str, **body: Any) -> httpx.Response:
        body.setdefault("max_tokens", 24)
        return self.client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": question}], **body}
        )


@contextmanager
def serving(home: Path, memory: Path, log: Path, **settings: object) -> Iterator[Server]:
    """Start the service on a free port, wait until it is ready, and stop it by SIGTERM."""
    port = _free_port()
    flags = {"home": home, "memory_dir": memory, "port": port, "kv_cache_gib": 1, **settings}
    command = [sys.executable, "-m", "app.cli", "serve"]
    command += [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=_environment())
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            _wait_until_ready(process, client, log)
            yield Server(process, client, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_until_ready(process: "subprocess.Popen[bytes]", client: httpx.Client, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended: {log.read_text()[-3000:]}"
        try:
            if client.get("/ready").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"the server is not ready after {START_S} s: {log.read_text()[-3000:]}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("KVFUSE_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
