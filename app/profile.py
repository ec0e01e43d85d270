"""How this service makes passages, and the name of all that they depend on."""

from blake3 import blake3

from app.config import Settings
from app.language import Language
from cascade.passages import PassageMaker
from store.keys import chunk_key


def passage_maker(settings: Settings, language: Language) -> PassageMaker:
    """Makes passages whose chunks have the keys of this model and tenant."""
    return PassageMaker(
        language.plain,
        lambda token_ids: chunk_key(language.fingerprint, settings.tenant_salt, token_ids),
        settings.passage_tokens,
    )


def profile_of(settings: Settings, language: Language) -> str:
    """The profile of the catalogue, see `Catalog.open`."""
    depends_on = (language.fingerprint, settings.tenant_salt, settings.passage_tokens, str(settings.embedder))
    return blake3(repr(depends_on).encode()).hexdigest()
