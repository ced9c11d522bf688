"""The search for secrets finds them where they would be left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.core import mail
from django.core.mail import EmailMessage

from accounts.models import User
from tests import secrecy
from tests.conftest import pytest_runtest_makereport

KEY = "rc-" + "5a" * 24


@pytest.mark.parametrize("text", [KEY, f"said: {secrecy.is_secret('once-said-7712')}!"])
def test_a_row_that_was_written_is_seen_though_it_is_rolled_back(text: str, db: None) -> None:
    User.objects.create_user("mei@example.com", name=text)
    with pytest.raises(pytest.fail.Exception, match="found in a row"):
        secrecy.check_rows()
    User.objects.update(name=text)
    with pytest.raises(pytest.fail.Exception, match="found in a row"):
        secrecy.check_rows()


def test_a_session_is_opened(db: None) -> None:
    session = SessionStore()
    session["about"] = f"{KEY} and much else, {'so that it is packed ' * 20}"
    session.create()
    with pytest.raises(pytest.fail.Exception, match="found in a session"):
        secrecy.check_rows()


def test_the_token_of_a_mailed_link_is_a_secret_from_then_on(db: None, mailoutbox: list[EmailMessage]) -> None:
    token = "token-of-a-link-in-a-mail"
    User.objects.create_user("mei@example.com", name=token)
    EmailMessage("Invitation", f"http://localhost/invitations/{token}/", to=["mei@example.com"]).send()
    assert mail.outbox
    with pytest.raises(pytest.fail.Exception, match="found in a row"):
        secrecy.check_rows()


def test_any_file_of_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "1.journal").write_bytes(b"\x00" + KEY.encode())
    with pytest.raises(pytest.fail.Exception, match=r"rc-5a5a… found in .*1\.journal"):
        secrecy.check_folder(tmp_path)


def test_what_a_test_logs_fails_it() -> None:
    report = SimpleNamespace(sections=[("Captured log call", f"ERROR {KEY}")], passed=True, outcome="passed")
    hook = pytest_runtest_makereport(None, None)  # type: ignore[arg-type]
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    assert (report.outcome, report.longrepr) == ("failed", "rc-5a5a… found in the captured output")
