"""Brings a catalogue file to the newest schema, from any earlier one or from nothing."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, insert, select, text

from cascade.errors import CatalogVersionError
from cascade.schema import state

_SCRIPTS = Path(__file__).parent / "migrations"
_BEFORE_ALEMBIC = 1  # user_version of files written before migrations were numbered
_FIRST = "0001"


def prepare(connection: Connection, profile: str) -> None:
    """Create or migrate the tables; CatalogVersionError, and nothing done, for a file of a newer program."""
    connection.execute(text("BEGIN IMMEDIATE"))  # the driver opens no transaction for table definitions
    config = _config(connection)
    if _is_old(connection):
        command.stamp(config, _FIRST)
    if MigrationContext.configure(connection).get_current_revision() != _newest(config):
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise CatalogVersionError(f"the catalogue was written by a newer program ({error})") from None
    if connection.execute(select(state.c.profile)).first() is None:
        connection.execute(insert(state).values(profile=profile, revision=1))


def _is_old(connection: Connection) -> bool:
    if MigrationContext.configure(connection).get_current_revision() is not None:
        return False
    found = connection.execute(text("PRAGMA user_version")).scalar_one()
    if found not in (0, _BEFORE_ALEMBIC):
        raise CatalogVersionError(f"the catalogue has schema version {found}, this program knows {_BEFORE_ALEMBIC}")
    return bool(found)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _newest(config: Config) -> str | None:
    return ScriptDirectory.from_config(config).get_current_head()
