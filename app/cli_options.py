"""Command-line options made out of the settings: one flag for each field, validated where the settings are."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_args

import typer
from pydantic.fields import FieldInfo

from app.config import Settings, load_settings

P = ParamSpec("P")


def with_settings(command: Callable[Concatenate[Settings, P], None]) -> Callable[P, None]:
    """The command with a flag for every setting; it is called with the parsed ``Settings`` first.

    Flags carry text, so that a value means and fails the same on the command line, in the environment and in YAML.
    """
    flags = [_flag(name, field) for name, field in Settings.model_fields.items()]
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        values = {name: kwargs.pop(name) for name in Settings.model_fields}
        settings = load_settings(**{name: value for name, value in values.items() if value is not None})
        command(settings, *args, **kwargs)

    run.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *flags)}
    del run.__dict__["__wrapped__"]
    return run


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    switch = bool in _types(field.annotation)
    dashed = name.replace("_", "-")
    option = typer.Option(
        f"--{dashed}/--no-{dashed}" if switch else f"--{dashed}",
        help=_help(field),
        metavar=None if switch else _metavar(field),
        show_default=False,
    )
    kind: Any = bool | None if switch else str | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _help(field: FieldInfo) -> str:
    default = field.default
    shown = "" if field.default_factory or default is None or default == () or default == "" else f" [{default}]"
    return f"{field.description}{shown}"


def _metavar(field: FieldInfo) -> str:
    choices = [value for value in get_args(field.annotation) if isinstance(value, str)]
    if choices:
        return "|".join(choices)
    kinds = {int: "INT", float: "FLOAT", Path: "PATH"}
    return next((kinds[kind] for kind in _types(field.annotation) if kind in kinds), "TEXT")


def _types(annotation: Any) -> tuple[Any, ...]:
    return tuple(kind for kind in get_args(annotation) if kind is not type(None)) or (annotation,)
