"""Tenants with one engine and one store between them, asked over HTTP, all at once and one after the other."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.e2e.borrowed import Borrowed, borrowed
from tests.e2e.lab import ANSWER, FACTS, Lab

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PLACES = ("Norden", "Altum", "Brekke", "Corvall", "Dunmore", "Eskild", "Farrow", "Gantry")
COMMON = "".join(FACTS[:2])
BRIDGES = "How many bridges cross the river in Kelvara?"


@dataclass
class Tenant:
    """A service, its document of common text, and by place the document that holds the code of its gate."""

    service: Borrowed
    common: str
    codes: dict[str, str]
    documents: dict[str, str]

    async def ask(self, place: str) -> str:
        text, account = await self.service.stream(question(place), [self.documents[place], self.common])
        assert account["tokens"]["missed_chunks"] == 0
        assert account["tokens"]["reused"] > 0
        return text


def question(place: str) -> str:
    return f"What is the code of the gate of the {place} depot?"


async def move_in(service: Borrowed, first_code: int) -> Tenant:
    codes = {place: str(first_code + 111 * number) for number, place in enumerate(PLACES)}
    texts = [
        f"The {place} depot stores rope. The code of the gate of the {place} depot is {codes[place]}."
        for place in PLACES
    ]
    common, *documents = await asyncio.gather(*(service.add(f"{text[:20]}.txt", text) for text in (COMMON, *texts)))
    return Tenant(service, common, codes, dict(zip(PLACES, documents, strict=True)))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tenants(
    lab: Lab, embedder_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Tenant, Tenant]]:
    homes = [tmp_path_factory.mktemp(name) for name in ("ada", "bob")]
    async with (
        borrowed(lab, embedder_dir, homes[0], tenant_salt="ada") as ada,
        borrowed(lab, embedder_dir, homes[1], tenant_salt="bob") as bob,
    ):
        first, second = await asyncio.gather(move_in(ada, 2001), move_in(bob, 5005))
        yield first, second


async def test_sixteen_at_once_get_their_own_facts_and_nobody_elses(tenants: tuple[Tenant, Tenant]) -> None:
    asked = [(tenant, place) for place in PLACES for tenant in tenants]
    answers = await asyncio.gather(*(tenant.ask(place) for tenant, place in asked))
    everyones = {code for tenant in tenants for code in tenant.codes.values()}
    for (tenant, place), text in zip(asked, answers, strict=True):
        assert everyones & set(re.findall(r"\d+", text)) == {tenant.codes[place]}, text


async def test_a_tenant_reuses_nothing_of_anothers(tenants: tuple[Tenant, Tenant]) -> None:
    """Neither chunks nor fused blocks, though text, question, engine and store are the same."""
    ada, bob = tenants
    ask: Any = {"question": "What is the password of the guest network?"}
    first = (await ada.service.ask(documents=[ada.common], **ask)).json()
    again = (await ada.service.ask(documents=[ada.common], **ask)).json()
    other = (await bob.service.ask(documents=[bob.common], **ask)).json()
    assert first["choices"] == again["choices"] == other["choices"]
    assert ada.service.cached()[-2] == bob.service.cached()[-1] == 0
    assert ada.service.cached()[-1] != 0
    assert other["kvfuse"]["tokens"] == first["kvfuse"]["tokens"]


async def test_what_a_tenant_deletes_others_keep(tenants: tuple[Tenant, Tenant]) -> None:
    """The same text has a chunk for each tenant."""
    ada, bob = tenants
    text = "".join(FACTS[3:5])
    gone, kept = await ada.service.add("rivers.txt", text), await bob.service.add("rivers.txt", text)
    assert (await ada.service.client.delete(f"/v1/files/{gone}")).json()["deleted"] is True
    answer = (await bob.service.ask("How long is the river Anset?", [kept])).json()
    assert answer["kvfuse"]["tokens"]["missed_chunks"] == 0
    assert answer["kvfuse"]["tokens"]["reused"] > 0


@pytest.mark.parametrize(
    ("policy", "share", "shared"), [("hybrid", False, False), ("hybrid", True, True), ("variance", False, True)]
)
async def test_whether_another_question_gets_the_same_fused_context(
    lab: Lab, embedder_dir: Path, tmp_path: Path, policy: str, share: bool, shared: bool
) -> None:
    """By setting; a policy that does not look at the question always shares."""
    salt = f"{policy} {share}"
    async with borrowed(lab, embedder_dir, tmp_path, tenant_salt=salt, share_fused=share, policy=policy) as service:
        document = await service.add("bridges.txt", FACTS[0])
        for asked in ("Of what stone is the oldest bridge of Kelvara built?", BRIDGES, BRIDGES):
            answer = (await service.ask(asked, [document])).json()
            assert answer["kvfuse"]["tokens"]["missed_chunks"] == 0
        first, second, repeated = service.cached()
        assert first == 0 != repeated
        assert (second != 0) is shared
        assert re.search("seven|7", answer["choices"][0]["message"]["content"])


async def test_an_answer_that_takes_too_long_is_given_up_and_the_next_is_not(
    lab: Lab, embedder_dir: Path, tmp_path: Path
) -> None:
    endless = {"max_tokens": 2000, "temperature": 2.0, "seed": 1}
    async with borrowed(lab, embedder_dir, tmp_path, request_timeout_s=1.0) as service:
        document = await service.add("common.txt", COMMON)
        late = await asyncio.gather(*(service.ask(BRIDGES, [document], **endless) for _ in range(4)))
        assert {response.status_code for response in late} == {httpx.codes.GATEWAY_TIMEOUT}
        assert service.seen == []
    answer = await lab.ask(lab.prompt(lab.passages), lab.plan(lab.passages, "none"))
    assert ANSWER in answer.text


async def test_an_answer_may_fill_the_context_and_not_a_token_more(tenants: tuple[Tenant, Tenant]) -> None:
    service = tenants[0].service
    document = await service.add("short.txt", "The mill stands in Ostrand.")
    limit = (await service.ask("Where is the mill?", [document], max_tokens=100_000)).json()["error"]["message"]
    room = int(limit.partition(" leaves ")[2].partition(" of the model's context of 4096 tokens")[0])
    within = await service.ask("Where is the mill?", [document], max_tokens=room, stop=".")
    beyond = await service.ask("Where is the mill?", [document], max_tokens=room + 1)
    assert within.status_code == httpx.codes.OK
    assert beyond.status_code == httpx.codes.BAD_REQUEST
    assert beyond.json()["error"]["code"] == "context_length_exceeded"
