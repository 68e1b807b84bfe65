"""A server's settings: where they come from, what is refused, and when it is safe to listen."""

import re
import socket
from pathlib import Path

import pytest

from holdfast.errors import SettingsError
from holdfast.server import Limits, ServerSettings
from holdfast.server.admission.safety import check, is_loopback, store_url
from holdfast.server.configuration import configure, names, value_of, variable
from holdfast.server.main import make_room

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "server-settings.md"
EXAMPLE = ROOT / "packaging" / "holdfast.toml"


def settings_from(flags=None, environment=None, file=None):
    return configure(flags or {}, environment or {}, file).settings


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "holdfast.toml"
    path.write_text('drain = 3\nhost = "localhost"\nport = 7001\n\n[limits]\nrate = 10\n')
    return path


# Where they come from.


def test_without_anything_the_defaults_hold():
    assert settings_from() == ServerSettings()


def test_flags_win_over_the_environment_which_wins_over_the_file(file):
    environment = {"HOLDFAST_SERVER_PORT": "7002", "HOLDFAST_SERVER_LIMITS_RATE": "20"}
    settings = settings_from({"port": "7003"}, environment, file)
    assert (settings.port, settings.limits.rate, settings.drain) == (7003, 20.0, 3.0)


def test_it_is_known_where_each_setting_came_from(file):
    found = configure({"limits.body": "1000"}, {"HOLDFAST_SERVER_DRAIN": "4"}, file)
    assert {name: source for name, source in found.sources.items() if source != "default"} == {
        "limits.body": "--limit body",
        "drain": "HOLDFAST_SERVER_DRAIN",
        "host": str(file),
        "port": str(file),
        "limits.rate": str(file),
    }


def test_the_file_can_be_named_in_the_environment(file):
    assert settings_from(environment={"HOLDFAST_SERVER_CONFIG": str(file)}).port == 7001


def test_the_store_is_also_what_all_clients_use_but_last_of_all():
    common = {"HOLDFAST_URL": "sqlite:///common.db"}
    assert settings_from(environment=common).url == "sqlite:///common.db"
    own = {**common, "HOLDFAST_SERVER_URL": "sqlite:///own.db"}
    assert settings_from(environment=own).url == "sqlite:///own.db"


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("On", True), ("1", True), ("false", False)])
def test_a_switch_in_the_environment_may_be_put_in_several_ways(text, value):
    settings = settings_from(environment={"HOLDFAST_SERVER_INSECURE_NO_AUTHENTICATION": text})
    assert settings.insecure_no_authentication is value


def test_what_holds_can_be_printed_and_read_again_as_a_file(tmp_path):
    found = configure({"limits.rate": "12.5", "host": "localhost", "port": "8000"}, {})
    path = tmp_path / "printed.toml"
    path.write_text("\n".join(found.lines()))
    assert settings_from(file=path) == found.settings


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@db/app",
        "postgresql://db/app?user=ann&password=s3cret",
        "mysql://ann:s3cret@db/app?ssl_ca=/ca.pem",
    ],
)
def test_what_is_printed_has_no_password_in_it(url):
    text = "\n".join(configure({"url": url}, {}).lines())
    assert "s3cret" not in text
    assert "***" in text


# What is refused.


@pytest.mark.parametrize(
    ("flags", "environment", "content", "complaint"),
    [
        ({}, {"HOLDFAST_SERVER_DRIAN": "3"}, "", "nearest is 'HOLDFAST_SERVER_DRAIN'"),
        ({"limits.bdy": "3"}, {}, "", "nearest is 'limits.body'"),
        ({}, {}, "prot = 7", "'prot'; the nearest is 'port'"),
        ({}, {}, "[limits]\nstraems = 7", "the nearest is 'limits.streams'"),
        ({}, {}, "accept_times = true", "there is no setting"),
        ({}, {}, "port = 'x'", "must be a whole number"),
        ({}, {}, "limits = 3", "must be a table"),
        ({}, {}, "a = [", "is not TOML"),
        ({}, {"HOLDFAST_SERVER_PORT": "many"}, "", "port is 'many'; it must be a whole number"),
        ({}, {"HOLDFAST_SERVER_PORT": "70000"}, "", "from HOLDFAST_SERVER_PORT"),
        ({}, {"HOLDFAST_SERVER_INSECURE_NO_AUTHENTICATION": "perhaps"}, "", "must be true or false"),
        ({"auth": "maybe"}, {}, "", "auth is 'maybe'; it must be one of"),
        ({"drain": "-1"}, {}, "", "not negative"),
        ({"drain": "nan"}, {}, "", "finite"),
        ({"tls_cert": "a.pem"}, {}, "", "belong together"),
        ({"tls_client_ca": "a.pem"}, {}, "", "needs tls_cert"),
        ({"host": ""}, {}, "", "host is empty"),
        ({"limits.body": "0"}, {}, "", "nobody could ask"),
        ({"limits.shortest_ttl": "9", "limits.longest_ttl": "8"}, {}, "", "longest_ttl is 8 s"),
        ({"auth": "required", "insecure_no_authentication": True}, {}, "", "decide"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_be_right(
    flags, environment, content, complaint, tmp_path
):
    file = tmp_path / "server.toml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        configure(flags, environment, file)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=r"cannot be read: .*No such file"):
        configure({}, {}, tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["url", "port", "limits", "accept_times", "drain"])
def test_values_of_a_wrong_type_are_refused_when_settings_are_made(name):
    wrong = {"limits": {"body": "x"}}.get(name, ["x"])
    with pytest.raises((SettingsError, TypeError)):
        ServerSettings(**{name: Limits(**wrong) if isinstance(wrong, dict) else wrong})


# Who can reach it.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_these_are_this_machine_alone(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "locks.internal", "localhost.example"])
def test_these_may_be_reached_by_others(host):
    assert not is_loopback(host)


def test_on_this_machine_nobody_is_asked_until_there_is_a_token():
    assert check(ServerSettings(), tokens=False).authentication is False
    assert check(ServerSettings(), tokens=True).authentication is True


def test_others_are_not_served_without_authentication():
    with pytest.raises(SettingsError) as raised:
        check(ServerSettings(host="0.0.0.0"), tokens=False)
    assert "holdfast token create" in str(raised.value)
    assert "--insecure-no-authentication" in str(raised.value)


def test_others_are_served_with_it():
    safety = check(ServerSettings(host="0.0.0.0"), tokens=True)
    assert safety.authentication is True
    assert "in the clear" in " ".join(safety.warnings)


def test_with_tls_there_is_nothing_to_warn_of():
    settings = ServerSettings(host="0.0.0.0", tls_cert="a.pem", tls_key="a.key")
    assert check(settings, tokens=True).warnings == ()


def test_others_are_served_without_if_somebody_says_so_in_so_many_words():
    safety = check(ServerSettings(host="0.0.0.0", insecure_no_authentication=True), tokens=False)
    assert safety.authentication is False
    assert "may take and break every lock" in " ".join(safety.warnings)


def test_when_it_is_required_it_is_even_if_there_is_no_token_yet():
    safety = check(ServerSettings(auth="required"), tokens=False)
    assert safety.authentication is True
    assert "nobody may do anything" in " ".join(safety.warnings)


# The store.


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ("sqlite:///a.db", "sqlite:///a.db?synchronous=full"),
        ("sqlite+pysqlite:///a.db", "sqlite:///a.db?synchronous=full"),
        ("sqlite:///a.db?busy_timeout=1", "sqlite:///a.db?busy_timeout=1&synchronous=full"),
        ("sqlite:///a.db?synchronous=normal", "sqlite:///a.db?synchronous=normal"),
        ("memory://shared", "memory://shared"),
        ("postgresql://db/app", "postgresql://db/app"),
    ],
)
def test_a_file_is_written_to_the_disk_before_each_answer_unless_the_url_says_otherwise(given, opened):
    assert store_url(ServerSettings(url=given)) == opened


def test_without_a_url_it_is_a_file_of_the_user():
    assert store_url(ServerSettings(), lambda: "sqlite:///mine.db") == "sqlite:///mine.db?synchronous=full"


def test_a_world_in_memory_has_a_name_of_its_own():
    first, second = (store_url(ServerSettings(url="memory://")) for _ in range(2))
    assert first != second
    assert first.removeprefix("memory://")


def test_a_server_is_no_store_of_a_server():
    with pytest.raises(SettingsError, match="database"):
        store_url(ServerSettings(url="https://locks.internal"))


def test_there_is_room_for_as_many_connections_as_are_allowed_or_a_warning():
    assert make_room(ServerSettings(limits=Limits(connections=10))) == ""
    text = make_room(ServerSettings(limits=Limits(connections=2**40)))
    assert "limits.connections" in text


# Documents that cannot rot.


def test_every_setting_is_in_the_reference_with_its_variable():
    text = DOCUMENT.read_text("utf-8")
    assert [name for name in names() if f"| `{name}` |" not in text] == []
    assert [name for name in names() if f"`{variable(name)}`" not in text] == []


def test_the_reference_has_no_setting_that_there_is_not():
    rows = re.findall(r"^\| `([a-z_.]+)` \| `HOLDFAST_SERVER_", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert set(rows) == set(names())


def test_the_reference_has_the_defaults():
    rows = re.findall(r"^\| `([a-z_.]+)` \|[^|]*\| ([^|]*?) \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert {name: text.replace(",", "").split()[0] for name, text in rows if name in names()} == {
        name: default_text(value_of(ServerSettings(), name)) for name in names()
    }


def default_text(value):
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`" if isinstance(value, str) and value else "–" if value == "" else f"{value:.8g}"


def test_the_example_file_is_complete_and_says_the_defaults(tmp_path):
    """Each line that is commented out can be used as it stands, and changes nothing."""
    lines = EXAMPLE.read_text("utf-8").splitlines()
    settings = [line.removeprefix("#") if re.match(r"#[a-z_]+ =|#\[", line) else line for line in lines]
    path = tmp_path / "all.toml"
    path.write_text("\n".join(settings))
    found = configure({}, {}, path)
    assert [name for name, source in found.sources.items() if source == "default"] == []
    expected = {name: value_of(ServerSettings(), name) for name in names()}
    given = {name: value_of(found.settings, name) for name in names()}
    differing = {name for name in names() if given[name] != expected[name]}
    # Their defaults are nothing; and a service asks who is there, whatever has become of its tokens.
    assert differing <= {"url", "tls_cert", "tls_key", "tls_client_ca", "auth"}


def test_the_example_file_can_be_used_as_it_is():
    assert settings_from(file=EXAMPLE).host == "127.0.0.1"


def test_the_unit_starts_the_server_hardened():
    unit = (ROOT / "packaging" / "holdfast.service").read_text("utf-8")
    for line in ("Type=notify", "DynamicUser=yes", "ProtectSystem=strict", "StateDirectory=holdfast"):
        assert line in unit
    assert "ExecReload=/bin/kill -HUP $MAINPID" in unit
    assert Path(re.search(r"--config (\S+)", unit)[1]).name == EXAMPLE.name


def test_a_localhost_that_is_another_address_is_not_this_machine_alone(monkeypatch):
    def elsewhere(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", elsewhere)
    assert not is_loopback("localhost")
