"""Settings are read with types, nonsense is refused, and what is read is documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.databases import database_from_url
from config.env import Env, EnvError, read_dotenv
from config.mailers import mailer_from_url
from config.settings import env

ROOT = Path(__file__).resolve().parents[2]


def test_values_come_with_their_types() -> None:
    given = Env({"A": " text ", "B": "yes", "C": "7", "D": "x, y ,", "E": "two", "F": "~/f"})
    assert given.text("A", help="") == "text"
    assert given.flag("B", False, help="") is True
    assert given.integer("C", 1, help="") == 7
    assert given.items("D", help="") == ["x", "y"]
    assert given.choice("E", "one", ["one", "two"], help="") == "two"
    assert given.path("F", help="") == Path("~/f").expanduser()


def test_an_empty_value_is_the_default() -> None:
    given = Env({"A": ""})
    assert given.integer("A", 30, help="") == 30
    assert given.path("B", help="") is None


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("integer", "many", "X takes a whole number, not 'many'"),
        ("integer", "-1", "X takes 0 or more, not -1"),
        ("flag", "perhaps", "X takes true or false, not 'perhaps'"),
    ],
)
def test_nonsense_is_refused_by_name(kind: str, value: str, text: str) -> None:
    given = Env({"X": value})
    with pytest.raises(EnvError) as refused:
        getattr(given, kind)("X", 0, help="")
    assert str(refused.value) == text


def test_a_choice_names_what_it_takes() -> None:
    with pytest.raises(EnvError, match="X takes one of a, b, not 'c'"):
        Env({"X": "c"}).choice("X", "a", ["a", "b"], help="")


def test_a_dotenv_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# comment\n\nA=1\nB = 'two words'\nC=a=b\n")
    assert read_dotenv(file) == {"A": "1", "B": "two words", "C": "a=b"}


def test_a_dotenv_line_without_a_name_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=1\nnonsense\n")
    with pytest.raises(EnvError, match=r"\.env, line 2: expected NAME=value"):
        read_dotenv(file)


def test_a_postgresql_address_is_taken_apart(tmp_path: Path) -> None:
    database = database_from_url("postgres://me:p%40ss@db:6432/tokens?sslmode=require", data_dir=tmp_path)
    given = [database[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT", "CONN_MAX_AGE")]
    assert given == ["tokens", "me", "p@ss", "db", "6432", 0]
    assert database["OPTIONS"]["sslmode"] == "require"


def test_another_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="takes postgres:// or sqlite://, not mysql://"):
        database_from_url("mysql://db/tokens", data_dir=tmp_path)


def test_mail_goes_to_the_console_or_to_a_server() -> None:
    assert mailer_from_url("")["BACKEND"].endswith("console.EmailBackend")
    options = mailer_from_url("smtp://me:secret@mail.example.com")["OPTIONS"]
    assert (options["host"], options["port"], options["use_tls"], options["use_ssl"]) == (
        "mail.example.com",
        587,
        True,
        False,
    )


def test_env_example_names_every_variable_with_its_default() -> None:
    expected = "".join(f"# {variable.help}\n#{variable.name}={variable.default}\n\n" for variable in env.variables)
    assert (ROOT / ".env.example").read_text() == expected.rstrip("\n") + "\n"


def test_the_readme_has_a_row_for_every_variable() -> None:
    section = (ROOT / "README.md").read_text().partition("<!-- settings -->\n")[2].partition("<!-- /settings -->")[0]
    rows = [
        f"| `{variable.name}` | {f'`{variable.default}`' if variable.default else ''} | {variable.help} |\n"
        for variable in env.variables
    ]
    assert section == "| variable | default | meaning |\n|---|---|---|\n" + "".join(rows)
