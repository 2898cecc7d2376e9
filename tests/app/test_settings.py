"""Settings: which source wins, and what a person is told when one is wrong."""

import stat
from pathlib import Path

import pytest

from app.settings import LogLevel, Settings, create_folders, load_settings
from models.errors import SettingsError
from models.kv import KvType


def loaded(
    home: Path, toml: str = "", env: dict[str, str] | None = None, **flags: object
) -> Settings:
    if toml:
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(toml)
    return load_settings(flags, {"RUNNER_HOME": str(home), **(env or {})})


def test_defaults(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert (settings.host, settings.port, settings.parallel) == ("127.0.0.1", 11411, 8)
    assert (settings.keep_alive_s, settings.max_queue) == (300.0, 256)
    assert settings.ctx is settings.api_key is settings.memory_budget is None
    assert settings.cache_ram is settings.gpu_layers is None
    assert settings.kv_type is KvType.F16
    assert settings.log_level is LogLevel.INFO
    assert settings.origin["port"] == "default"


def test_later_sources_win_and_are_remembered(tmp_path: Path) -> None:
    toml = "port = 1\nctx = 1000\nparallel = 2\n"
    env = {"RUNNER_PORT": "2", "RUNNER_CTX": "2000"}
    settings = loaded(tmp_path, toml, env, port=3, host=None)
    assert (settings.port, settings.ctx, settings.parallel) == (3, 2000, 2)
    assert settings.origin["port"] == "--port"
    assert settings.origin["ctx"] == "RUNNER_CTX"
    assert settings.origin["parallel"] == str(tmp_path / "config.toml")
    assert settings.origin["host"] == "default"


def test_a_home_holds_everything(tmp_path: Path) -> None:
    settings = loaded(tmp_path / "home")
    for path in (settings.models_dir, settings.state_dir, settings.config_file):
        assert path.is_relative_to(tmp_path / "home")
    assert settings.origin["models_dir"] == "RUNNER_HOME"
    create_folders(settings)
    for folder in (tmp_path / "home", settings.models_dir, settings.state_dir):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_a_home_the_platform_decides() -> None:
    settings = load_settings({}, {})
    assert settings.config_file.name == "config.toml"
    assert settings.models_dir.is_absolute()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12GiB", 12 * 1024**3),
        ("8GB", 8 * 10**9),
        ("1.5g", 3 * 2**29),
        ("512 MiB", 2**29),
        ("7", 7),
    ],
)
def test_sizes_are_read(tmp_path: Path, text: str, size: int) -> None:
    assert loaded(tmp_path, env={"RUNNER_MEMORY_BUDGET": text}).memory_budget == size


def test_how_a_cache_is_made_is_read_from_every_source(tmp_path: Path) -> None:
    env = {"RUNNER_CACHE_RAM": "4GiB", "RUNNER_KV_TYPE": "Q8_0"}
    settings = loaded(tmp_path, 'kv_type = "q4_0"\ngpu_layers = 12', env)
    assert (settings.kv_type, settings.cache_ram) == (KvType.Q8_0, 4 << 30)
    assert settings.gpu_layers == 12
    settings = loaded(tmp_path, "cache_ram = 0", kv_type="f16", gpu_layers="auto")
    assert (settings.kv_type, settings.cache_ram) == (KvType.F16, 0)
    assert settings.gpu_layers is None


def test_truth_is_read(tmp_path: Path) -> None:
    assert loaded(tmp_path, "local_only = true").local_only
    assert not loaded(tmp_path, env={"RUNNER_LOCAL_ONLY": "no"}).local_only


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    assert loaded(tmp_path, env={"RUNNER_API_KEY": "", "RUNNER_PORT": ""}).port == 11411


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("port", "70000", "0 to 65535"),
        ("port", "web", "0 to 65535"),
        ("ctx", "0", "16 or more"),
        ("parallel", "0", "1 to 256"),
        ("log_level", "loud", "debug, info, warning, error"),
        ("keep_alive_s", "nan", "seconds"),
        ("memory_budget", "lots", "12GiB"),
        ("kv_type", "q5_1", "f16, q8_0, q4_0"),
        ("cache_ram", "-1", "0 for none"),
        ("gpu_layers", "all", "auto, or a number"),
        ("local_only", "maybe", "true or false"),
        ("api_key", "a\nb", "printable"),
    ],
)
def test_a_wrong_value_is_explained(tmp_path: Path, key: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as error:
        loaded(tmp_path, env={f"RUNNER_{key.upper()}": value})
    for part in (key, f"RUNNER_{key.upper()}", allowed):
        assert part in error.value.message
    assert (value in error.value.message) == (key != "api_key")


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("prot = 1", "Did you mean port"),
        ("zzz = 1", "Known keys"),
        ("port = ", "not valid TOML"),
        ("port = true", "port = True"),
        ("port = 1.5", "0 to 65535"),
        ("host = 5", "an address"),
        ("local_only = 1", "true or false"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, toml: str, told: str) -> None:
    with pytest.raises(SettingsError) as error:
        loaded(tmp_path, toml)
    assert told in error.value.message
    assert str(tmp_path / "config.toml") in error.value.message


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        loaded(tmp_path, config_file=str(tmp_path / "nope.toml"))
    (tmp_path / "mine.toml").write_text("port = 9")
    settings = loaded(tmp_path, env={"RUNNER_CONFIG_FILE": str(tmp_path / "mine.toml")})
    assert settings.port == 9
    assert settings.origin["config_file"] == "RUNNER_CONFIG_FILE"


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="state_dir"):
        create_folders(loaded(tmp_path, env={"RUNNER_STATE_DIR": str(tmp_path / "file/x")}))
