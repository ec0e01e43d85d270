"""What a question gets that no document is about."""

from enum import StrEnum


class NoContext(StrEnum):
    """Answer without documents, say that they do not answer it, or ask for another question."""

    ANSWER = "answer"
    REFUSE = "refuse"
    ASK = "ask"


REPLIES = {
    NoContext.REFUSE: "The documents do not answer this question.",
    NoContext.ASK: (
        "I found nothing about this in the documents. Could you ask in other words, or say which document you mean?"
    ),
}
"""The whole answer, where no model is asked."""
