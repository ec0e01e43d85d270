"""Data sets of questions with their candidate documents, read from published formats or generated."""

from app.eval.data.question import Doc, Question
from app.eval.data.registry import load_questions

__all__ = ["Doc", "Question", "load_questions"]
