"""Query likelihood over stored KV, on the real engine."""

import pytest

from app.lm_scorer import LEAD, LmScorer
from cascade.token_vectors import Question
from cascade.types import Passage
from fuse.plan import FusePlan, PolicySpec, Segment
from store.keys import chunk_key
from tests.e2e.lab import QUESTION, Lab

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.e2e
async def test_stored_kv_scores_as_computing_it_does(lab: Lab) -> None:
    head, lead = lab.language.scheme.head, lab.language.plain.encode(LEAD)
    asked = lab.language.plain.encode(f" {QUESTION}")
    for passage in lab.passages[:3]:
        key = chunk_key(lab.language.fingerprint, "behind the head", passage)
        await lab.save_behind_head(passage, key)
        plan = FusePlan(lab.language.fingerprint, (Segment(len(head)), Segment(len(passage), key)), PolicySpec("none"))
        before = [*head, *passage, *lead]
        stored = await lab.engine.log_likelihood(before, asked, plan)
        assert stored == pytest.approx(await lab.engine.log_likelihood(before, asked), abs=0.5)
        assert stored < 0


@pytest.mark.e2e
async def test_the_passage_with_the_answer_makes_the_question_likeliest(lab: Lab) -> None:
    scorer = LmScorer(lab.engine, lab.language)
    passages = [
        Passage(str(n), str(n), n, "", "", 0, 0, tuple(ids), lab.key(ids)) for n, ids in enumerate(lab.passages)
    ]
    texts = [lab.language.prompts._tokenizer.decode(ids) for ids in lab.passages]
    question = Question(QUESTION, None, None, (), None)  # type: ignore[arg-type]
    scores = await scorer.score(question, passages)
    best = max(range(len(scores)), key=lambda index: scores[index])
    assert "cookbook Salt and Fire" in texts[best]
