import json
from pathlib import Path

from app.language import Language


def test_weights_are_hashed_once_for_all_starts(model_dir: Path, tmp_path: Path) -> None:
    first = Language.load(model_dir, "bfloat16", cache_dir=tmp_path)
    (remembered,) = tmp_path.iterdir()
    hashes = json.loads(remembered.read_text())
    assert Language.load(model_dir, "bfloat16", cache_dir=tmp_path).fingerprint == first.fingerprint
    remembered.write_text(json.dumps(dict.fromkeys(hashes, "00" * 32)))
    assert Language.load(model_dir, "bfloat16", cache_dir=tmp_path).fingerprint != first.fingerprint, "hashed again"
