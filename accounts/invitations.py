"""Places in a team offered by mail. The link works once, for the address it was sent to, until it expires."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import timedelta
from smtplib import SMTPException

from allauth.account.models import EmailAddress
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import IntegrityError, transaction
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext

from accounts import key_epoch
from accounts.audit import Action, Actor, record
from accounts.models import Invitation, Membership, Role, Team, User
from accounts.rights import grantable_roles

LIFETIME = timedelta(days=7)
# A mail costs its receiver something: what one team can have open, and what a person and an address can be sent a day.
MAX_PENDING = 100
MAX_OF_A_PERSON = 100
MAX_TO_AN_ADDRESS = 5


class InvitationRefused(Exception):
    """No invitation is sent; the message is for the person who asked."""


class WrongAddress(Exception):
    """The invitation was sent to somebody else than who is signed in."""


def invite(*, team: Team, email: str, role: Role, invited_by: User, actor: Actor) -> Invitation:
    """Send an invitation. One that was sent to the same address before stops working.

    Raises InvitationRefused for a member's address, for too many, where the mail cannot be sent, and where whoever
    invites may not give that role (any more).
    """
    address = email.strip().lower()
    token = secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            _check(team, address, role, invited_by)
            team.invitations.pending().filter(email=address).update(revoked_at=timezone.now())
            made = team.invitations.create(
                email=address,
                role=role,
                digest=_digest(token),
                invited_by=invited_by,
                expires_at=timezone.now() + LIFETIME,
            )
            details = {"role": role.value}
            record(actor=actor, action=Action.INVITATION_SENT, team=team, object=made, details=details)
    except IntegrityError:
        raise InvitationRefused(gettext("Somebody invited this address at the same moment.")) from None
    _send(made, token)
    return made


def revoke_invitation(*, invitation: Invitation, actor: Actor) -> bool:
    """The link stops working. False where it was accepted or revoked before."""
    with transaction.atomic():
        pending = Invitation.objects.pending().filter(pk=invitation.pk)
        if not pending.update(revoked_at=timezone.now()):
            return False
        record(actor=actor, action=Action.INVITATION_REVOKED, team=invitation.team, object=invitation)
    return True


def withdraw_invitations_of(*, team: Team, user: User, except_to: Collection[Role], actor: Actor) -> None:
    """Those he may no longer send: else somebody who was removed would let himself in again by another address.

    All of them where nobody is left in the team. Inside a transaction.
    """
    pending = team.invitations.pending().exclude(role__in=except_to)
    if team.memberships.exists():
        pending = pending.filter(invited_by=user)
    for invitation in pending:
        invitation.revoked_at = timezone.now()
        invitation.save(update_fields=["revoked_at"])
        details = {"reason": "inviter"}
        record(actor=actor, action=Action.INVITATION_REVOKED, team=team, object=invitation, details=details)


def find_invitation(token: str) -> Invitation | None:
    """Whatever has become of it: accepted, revoked and expired ones too."""
    return Invitation.objects.filter(digest=_digest(token)).select_related("team", "invited_by").first()


def is_for(invitation: Invitation, user: User) -> bool:
    """Whether the person has the address. His main one will do unverified: the link was read in that mailbox.

    Another one has to be verified: anybody can add any address, and then use a link that was passed on to him.
    """
    if user.email.lower() == invitation.email:
        return True
    return bool(EmailAddress.objects.filter(user=user, email__iexact=invitation.email, verified=True).exists())


def accept(*, invitation: Invitation, user: User, actor: Actor) -> Membership | None:
    """Join the team; None where the invitation no longer holds. Raises WrongAddress.

    Who is a member already keeps his role: a link in an old mail takes nobody down, and nobody up.
    """
    if not is_for(invitation, user):
        raise WrongAddress
    with transaction.atomic():
        # The last owner does not end his account while somebody joins.
        Team.objects.select_for_update().get(pk=invitation.team_id)
        if not Membership.objects.filter(team_id=invitation.team_id, role=Role.OWNER).exists():
            return None
        if not Invitation.objects.open().filter(pk=invitation.pk).update(accepted_at=timezone.now()):
            return None
        team, role = invitation.team, Role(invitation.role)
        membership, joined = Membership.objects.get_or_create(team=team, user=user, defaults={"role": role})
        if joined:
            details = {"role": role.value, "invited_by": str(invitation.invited_by or "")}
            record(actor=actor, action=Action.MEMBER_JOINED, team=team, object=user, details=details)
    key_epoch.bump()
    return membership


def _check(team: Team, address: str, role: Role, invited_by: User) -> None:
    Team.objects.select_for_update().get(pk=team.pk)
    inviter = Membership.objects.filter(team=team, user=invited_by).first()
    if inviter is None or role not in grantable_roles(inviter):
        raise InvitationRefused(gettext("You cannot invite with this role."))
    if Membership.objects.filter(team=team, user__email__iexact=address).exists():
        raise InvitationRefused(gettext("This person is a member of the team already."))
    if team.invitations.open().count() >= MAX_PENDING:
        raise InvitationRefused(gettext("Too many invitations are open. Revoke some, or wait until they are answered."))
    today = Invitation.objects.filter(created_at__gt=timezone.now() - timedelta(days=1))
    if (
        today.filter(invited_by=invited_by).count() >= MAX_OF_A_PERSON
        or today.filter(email=address).count() >= MAX_TO_AN_ADDRESS
    ):
        raise InvitationRefused(gettext("Too many invitations were sent within a day. Try again tomorrow."))


def _send(invitation: Invitation, token: str) -> None:
    """Outside the transaction: no lock is held while a mail server is spoken to."""
    link = settings.SITE_URL + reverse("accounts:invitation", args=[token])
    context = {"invitation": invitation, "link": link, "site_name": settings.SITE_NAME}
    subject = gettext("Invitation to %(team)s on %(site)s") % {"team": invitation.team, "site": settings.SITE_NAME}
    body = render_to_string("accounts/email/invitation.txt", context)
    try:
        # A team's name may hold what a header must not.
        EmailMessage(" ".join(subject.split()), body, to=[invitation.email]).send()
    except (OSError, SMTPException):
        Invitation.objects.filter(pk=invitation.pk).update(revoked_at=timezone.now())
        raise InvitationRefused(
            gettext("The mail could not be sent, so nobody was invited. Try again later.")
        ) from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
