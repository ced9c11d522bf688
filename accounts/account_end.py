"""The end of an account: the person goes, the teams' history keeps a name."""

from __future__ import annotations

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.db import transaction
from django.dispatch import Signal

from accounts import key_epoch
from accounts.audit import Action, Actor, record
from accounts.members import KeysOfLeaver, leave_all_teams
from accounts.models import User

# Sent with `user` inside the transaction: rooms above this one let go of what they keep of the person.
account_ended = Signal()
# A name under `.invalid` belongs to nobody and receives nothing.
DELETED_ADDRESS = "deleted-{id}@deleted.invalid"


def delete_account(*, user: User, name: str, keys: KeysOfLeaver, actor: Actor) -> None:
    """Leave every team and forget all about the person but `name`, which keys, usage and the audit log go on showing.

    The row stays, without address, password or any way to sign in. Raises LastOwner, changing nothing.
    """
    with transaction.atomic():
        leave_all_teams(user=user, keys=keys, actor=actor)
        sessions = list(UserSession.objects.filter(user=user))
        for model in (EmailAddress, Authenticator, SocialAccount):
            model.objects.filter(user=user).delete()
        account_ended.send(User, user=user)
        record(actor=Actor(actor.id, name, actor.address), action=Action.ACCOUNT_DELETED, team=None, object=user)
        user.name, user.email = name, DELETED_ADDRESS.format(id=user.pk)
        user.is_active = user.is_staff = user.is_superuser = False
        # Every session of the account carries a mark made of the password: without one none is good.
        user.set_unusable_password()
        user.save()
    for session in sessions:
        session.end()
    key_epoch.bump()
