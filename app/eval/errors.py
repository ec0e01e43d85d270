"""Errors of the evaluation, fit for the person who started it."""

from app.errors import AppError


class EvalError(AppError, ValueError):
    """The evaluation cannot run as asked."""

    default_code = "invalid_evaluation"


class DataError(EvalError):
    """A data set is missing, malformed or of an unknown format."""

    default_code = "invalid_data_set"
