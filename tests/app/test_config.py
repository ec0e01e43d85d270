from pathlib import Path
from typing import get_args

import pytest

from app.config import Policy, Settings, default_memory_dir, load_settings
from app.errors import ConfigError
from fuse.policies import POLICIES


@pytest.fixture
def yaml_file(tmp_path: Path) -> Path:
    path = tmp_path / "kvfuse.yaml"
    path.write_text("top_k: 7\nboundary_tokens: 8\nport: 9000\n")
    return path


def test_flag_wins_over_environment_over_yaml_over_default(yaml_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVFUSE_CONFIG", str(yaml_file))
    monkeypatch.setenv("KVFUSE_BOUNDARY_TOKENS", "16")
    monkeypatch.setenv("KVFUSE_PORT", "9001")
    settings = load_settings(port="9002")
    assert settings.port == 9002
    assert settings.boundary_tokens == 16
    assert settings.top_k == 7
    assert settings.max_num_seqs == Settings.model_fields["max_num_seqs"].default


def test_config_flag_wins_over_config_variable(yaml_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVFUSE_CONFIG", "/nowhere.yaml")
    assert load_settings(config=str(yaml_file)).top_k == 7


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"port": "70000"}, r"port \(KVFUSE_PORT, --port\).*65535.*'70000'"),
        ({"top_k": "0"}, r"top_k .*greater than or equal to 1.*'0'"),
        ({"policy": "magic"}, r"policy .*'none', .* or 'full'.*'magic'"),
        ({"max_upload_bytes": "many"}, r"max_upload_bytes \(KVFUSE_MAX_UPLOAD_BYTES, --max-upload-bytes\).*'many'"),
        ({"bogus": "1"}, "bogus: there is no such setting"),
    ],
)
def test_errors_name_the_setting_and_the_limit(values: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_settings(**values)


def test_one_bad_setting_is_not_blamed_on_those_derived_from_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(top_k="0")
    assert "memory_dir" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("top_k: 7\nnonsense: 1\n", "nonsense"),
        ("- 1\n", "holds a list"),
        ("a: [\n", "is not YAML"),
        ("top_k: {}\n", "top_k"),
    ],
)
def test_bad_yaml_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load_settings(config=path)


def test_empty_yaml_means_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing\n")
    assert load_settings(config=path).top_k == load_settings().top_k


def test_missing_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml"):
        load_settings(config=tmp_path / "none.yaml")


def test_keys_are_split_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVFUSE_API_KEYS", "first-key, second-key,")
    settings = load_settings()
    assert [key.get_secret_value() for key in settings.api_keys] == ["first-key", "second-key"]
    assert "first-key" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_bad_keys_are_not_shown_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("api_keys: [[hidden-key]]\n")
    with pytest.raises(ConfigError, match="api_keys") as caught:
        load_settings(config=path)
    assert "hidden-key" not in caught.value.message


def test_folders_follow_home(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    assert settings.disk_dir == tmp_path / "chunks"
    assert settings.memory_dir == default_memory_dir(tmp_path) != default_memory_dir(tmp_path / "other")


def test_memory_tier_is_under_home_without_tmpfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert default_memory_dir(tmp_path) == tmp_path / "memory"


def test_settings_cannot_change(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "smollm2-135m-instruct"),
        ({"model": "/models/Qwen3-4B"}, "Qwen3-4B"),
        ({"model": "/models/Qwen3-4B", "served_model_name": "qa"}, "qa"),
    ],
)
def test_model_name(values: dict[str, str], expected: str) -> None:
    assert load_settings(**values).model_name == expected


def test_every_recompute_policy_can_be_set() -> None:
    assert set(get_args(Policy)) == set(POLICIES)
