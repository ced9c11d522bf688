from django.apps import AppConfig
from django.db.models.signals import post_save
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    name = "accounts"
    verbose_name = _("People and teams")

    def ready(self) -> None:
        from accounts import account_events
        from accounts.models import User
        from accounts.teams import make_personal_team

        post_save.connect(make_personal_team, sender=User, dispatch_uid="personal_team")
        account_events.connect()
