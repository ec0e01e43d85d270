"""What a batch would do, told from the files, the catalogue and the store as they are."""

from pathlib import Path

import numpy as np
import pytest

from app.batch import BatchFile, BatchOptions, find_files
from app.config import Settings, load_settings
from app.dry_run import Action, Plan, plan_batch
from app.language import Language
from app.profile import passage_maker, profile_of
from cascade.catalog import Catalog
from cascade.parse import parse_document
from cascade.token_vectors import Embedding, TokenVectors
from cascade.types import MediaType, SourceText

FERRY = "The ferry crosses the bay nine times a day. " * 40


@pytest.fixture
def settings(tmp_path: Path, model_dir: Path) -> Settings:
    return load_settings(home=tmp_path / "home", model=model_dir, memory_dir=tmp_path / "memory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "documents").mkdir()
    return tmp_path / "documents"


async def planned(settings: Settings, folder: Path, **options: bool) -> Plan:
    return await plan_batch(settings, list(find_files([folder], BatchOptions())), BatchOptions(**options))


def actions(plan: Plan) -> dict[str, Action]:
    return {Path(file.path).stem: file.action for file in plan.files}


async def take_in(settings: Settings, file: BatchFile, error: str = "") -> None:
    """Add a file to the catalogue, and make it ready or failed."""
    assert settings.model is not None
    language = Language.load(settings.model, settings.dtype)
    catalog = await Catalog.open(settings.home / "catalog.sqlite", profile_of(settings, language))
    content = file.path.read_bytes()
    document = (await catalog.add(file.name, content, MediaType.TEXT, file.source())).document
    if error:
        await catalog.fail(document.id, error)
    else:
        document = await catalog.parsed(document.id, parse_document(file.name, content))
        made = passage_maker(settings, language).make(document, SourceText(content.decode()))
        vector = np.ones((1, 4), np.float32) / 2
        await catalog.complete(document.id, made, [Embedding(vector[0], TokenVectors.of(vector))] * len(made))
    await catalog.close()


async def test_a_first_run_is_foretold_and_nothing_is_made(settings: Settings, folder: Path) -> None:
    (folder / "ferry.txt").write_text(FERRY)
    (folder / "empty.txt").touch()
    plan = await planned(settings, folder)
    assert actions(plan) == {"ferry": Action.ADD, "empty": Action.REFUSE}
    ferry = next(file for file in plan.files if file.tokens)
    assert (ferry.passages, ferry.passages_missing) == (2, 2)
    assert ferry.tokens == ferry.tokens_missing > 400
    assert plan.seconds > 0
    assert "2 files: 1 add, 1 refuse" in plan.describe()
    assert "empty (0 bytes)" in plan.describe()
    assert not (settings.home / "catalog.sqlite").exists()


async def test_a_later_run_is_foretold_from_the_catalogue(settings: Settings, folder: Path) -> None:
    texts = {"same": FERRY, "changed": FERRY + "It has a bar.", "torn": "torn", "waiting": "waiting"}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
        if name != "waiting":
            file = BatchFile(folder / f"{name}.txt", f"{name}.txt")
            await take_in(settings, file, "is torn" if name == "torn" else "")
    (folder / "changed.txt").write_text(FERRY + "It has no bar.")
    (folder / "copy.txt").write_text(FERRY)
    plan = await planned(settings, folder)
    assert actions(plan) == {
        "same": Action.RESTORE,
        "copy": Action.RESTORE,
        "changed": Action.CHANGE,
        "torn": Action.KNOWN_FAILURE,
        "waiting": Action.ADD,
    }
    same = next(file for file in plan.files if Path(file.path).stem == "same")
    assert same.passages_missing == same.passages == 2, "it is ready, and its chunks are not in the store"
    assert "known failure: " in plan.describe()
    assert "is torn" in plan.describe()
    assert actions(await planned(settings, folder, retry_failed=True))["torn"] is Action.RESUME


async def test_another_models_catalogue_counts_for_nothing(settings: Settings, folder: Path) -> None:
    (folder / "ferry.txt").write_text(FERRY)
    await take_in(settings, BatchFile(folder / "ferry.txt", "ferry.txt"))
    other = settings.model_copy(update={"tenant_salt": "other"})
    assert actions(await planned(other, folder)) == {"ferry": Action.ADD}
    assert actions(await planned(settings, folder)) == {"ferry": Action.RESTORE}
