"""A team with something on each of its pages, and the browsers of its people, signed in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.installation import Installation
from tests.secrecy import is_secret

PASSWORD = is_secret("violet-harbour-42")

MAKE = """
import json
import django
django.setup()
from datetime import timedelta
from allauth.account.forms import default_token_generator
from allauth.account.models import EmailAddress, EmailConfirmationHMAC
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from allauth.mfa.webauthn.internal.auth import WebAuthn
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.core import mail
from django.test.utils import override_settings
from django.utils import timezone
from accounts.audit import Actor
from accounts.invitations import invite
from accounts.keys import KeyTerms, disable_key, issue_key, revoke_key, rotate_key
from accounts.members import change_role
from accounts.models import Membership, Role, Team, User

def person(name, email):
    user = User.objects.create_user(email, {password!r}, name=name)
    EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
    return user

owner = person("Mei Lin", "mei.{tag}@example.com")
tom = person("Tom Ashworth-Featherstonehaugh", "tom.{tag}@example.com")
team = Team.objects.create(name="Coastal Research Laboratory", time_zone="Asia/Shanghai")
nameless = person("", "a.very.long.address.{tag}@department.example.com")
for user, role in ((owner, Role.OWNER), (tom, Role.MEMBER), (nameless, Role.VIEWER)):
    Membership.objects.create(team=team, user=user, role=role)
actor = Actor(owner.pk, str(owner), "203.0.113.9")
terms = KeyTerms(models=["Qwen3.8-27B"], endpoints=["chat"], networks=["10.0.0.0/8"], rpm_limit=120, portable=True)
key = issue_key(team=team, created_by=owner, name="nightly batch of the harbour station", terms=terms, actor=actor).key
rotate_key(key=key, grace_seconds=86400, actor=actor)
revoke_key(key=issue_key(team=team, created_by=tom, name="old laptop", actor=actor).key, actor=actor)
disable_key(key=issue_key(team=team, created_by=tom, name="paused", actor=actor).key, actor=actor)
with override_settings(MAILERS={{"default": {{"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}}}):
    invite(team=team, email="newcomer.{tag}@example.com", role=Role.MEMBER, invited_by=owner, actor=actor)
    token = mail.outbox[0].body.split("/invitations/")[1].split("/")[0]
    invite(team=team, email="too.late.{tag}@example.com", role=Role.MEMBER, invited_by=owner, actor=actor)
    late = mail.outbox[1].body.split("/invitations/")[1].split("/")[0]
    team.invitations.filter(email__startswith="too.late").update(expires_at=timezone.now())
member = Membership.objects.get(team=team, user=tom)
change_role(membership=member, role=Role.ADMIN, actor=actor)

# Every factor there is, for the pages that look after them.
TOTP.activate(tom, "JBSWY3DPEHPK3PXP")
RecoveryCodes.activate(tom)
passkey = WebAuthn.add(tom, "Laptop", {{}}).instance
reset = user_pk_to_url_str(nameless) + "-" + default_token_generator.make_token(nameless)
confirm = EmailConfirmationHMAC(EmailAddress.objects.get(user=nameless)).key

def session(user):
    store = SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = "allauth.account.auth_backends.AuthenticationBackend"
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store["team_id"] = team.pk
    # The password was given lately, however long the tests take: pages that ask for it again do not.
    at = timezone.now().timestamp() + 86400
    store["account_authentication_methods"] = [{{"method": "password", "at": at, "reauthenticated": True}}]
    store["account_authentication_methods_user"] = str(user.pk)
    store.create()
    return store.session_key

print(json.dumps({{
    "email": owner.email, "key": key.pk, "member": member.pk, "token": token, "session": session(owner), "late": late,
    "admin_session": session(tom), "viewer_session": session(nameless), "passkey": passkey.pk, "reset": reset,
    "confirm": confirm,
}}))
"""


@dataclass(frozen=True, slots=True)
class Furnished:
    """Sessions are cookies: of the team's owner, of an admin with every sign-in factor, of a viewer.

    Tokens are of invitations, one open and one `late`, of a forgotten password and of an address to confirm.
    """

    email: str
    key: int
    member: int
    passkey: int
    token: str
    late: str
    reset: str
    confirm: str
    session: str
    admin_session: str
    viewer_session: str

    @property
    def pages(self) -> list[str]:
        """Every page of keys, teams and accounts that somebody signed in may open."""
        return [
            "/keys/",
            "/keys/new/",
            f"/keys/{self.key}/",
            "/keys/leaked/",
            "/team/",
            "/team/settings/",
            "/team/new/",
            "/team/leave/",
            f"/team/members/{self.member}/remove/",
            "/team/audit/",
            "/accounts/profile/",
            "/accounts/activity/",
            "/accounts/email/",
            "/accounts/password/change/",
            "/accounts/2fa/",
            "/accounts/2fa/totp/activate/",
            "/accounts/2fa/webauthn/",
            "/accounts/2fa/webauthn/add/",
            "/accounts/sessions/",
            "/accounts/3rdparty/",
            "/accounts/reauthenticate/",
            "/accounts/logout/",
            "/accounts/delete/",
        ]

    @property
    def admins_pages(self) -> list[str]:
        """Those of sign-in factors that are set up, and a team's page without the owner's rights."""
        factors = "/accounts/2fa"
        return [
            "/team/",
            f"{factors}/",
            f"{factors}/totp/deactivate/",
            f"{factors}/recovery-codes/",
            f"{factors}/recovery-codes/generate/",
            f"{factors}/webauthn/",
            f"{factors}/webauthn/keys/{self.passkey}/edit/",
            f"{factors}/webauthn/keys/{self.passkey}/remove/",
            f"{factors}/reauthenticate/",
        ]

    @property
    def viewers_pages(self) -> list[str]:
        return ["/keys/", f"/keys/{self.key}/", "/team/", "/team/leave/", f"/invitations/{self.token}/"]

    @property
    def entrances(self) -> list[str]:
        """Those of somebody who is not."""
        return [
            "/accounts/login/",
            "/accounts/signup/",
            "/accounts/password/reset/",
            "/accounts/password/reset/done/",
            "/accounts/confirm-email/",
            "/accounts/inactive/",
            "/accounts/3rdparty/login/error/",
            "/accounts/3rdparty/login/cancelled/",
            f"/invitations/{self.token}/",
            f"/invitations/{self.late}/",
            f"/accounts/password/reset/key/{self.reset}/",
            f"/accounts/confirm-email/{self.confirm}/",
        ]


def furnish(installed: Installation, *, tag: str) -> Furnished:
    made: dict[str, Any] = json.loads(installed.run_python(MAKE.format(tag=tag, password=PASSWORD)))
    for token in ("token", "late", "reset"):
        is_secret(made[token])
    return Furnished(**made)
