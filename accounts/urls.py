from django.urls import path
from django.views.i18n import set_language

from accounts import audit_views, people_views, team_views, views
from accounts.access import public

app_name = "accounts"
urlpatterns = [
    path("language/", public(set_language), name="set_language"),
    path("keys/", views.keys, name="keys"),
    path("keys/new/", views.create_key, name="create_key"),
    path("keys/leaked/", views.leaked, name="leaked_key"),
    path("keys/<int:key_id>/", views.key, name="key"),
    path("keys/<int:key_id>/change/", views.change, name="change_key"),
    path("keys/<int:key_id>/rotate/", views.rotate, name="rotate_key"),
    path("keys/<int:key_id>/disable/", views.disable, name="disable_key"),
    path("keys/<int:key_id>/enable/", views.enable, name="enable_key"),
    path("keys/<int:key_id>/revoke/", views.revoke, name="revoke_key"),
    path("team/", team_views.team, name="team"),
    path("team/new/", team_views.new_team, name="new_team"),
    path("team/switch/", team_views.switch, name="switch_team"),
    path("team/settings/", team_views.team_settings, name="team_settings"),
    path("team/transfer/", team_views.transfer, name="transfer_team"),
    path("team/leave/", team_views.leave, name="leave_team"),
    path("team/invitations/", team_views.send_invitation, name="invite"),
    path("team/invitations/<int:invitation_id>/revoke/", team_views.end_invitation, name="revoke_invitation"),
    path("team/members/<int:membership_id>/role/", team_views.set_role, name="set_role"),
    path("team/members/<int:membership_id>/remove/", team_views.remove, name="remove_member"),
    path("team/audit/", audit_views.audit, name="audit"),
    path("team/audit.csv", audit_views.audit_csv, name="audit_csv"),
    path("invitations/", people_views.invitation_after_sign_in, name="remembered_invitation"),
    path("invitations/<str:token>/", people_views.invitation, name="invitation"),
    path("accounts/oidc/<str:provider_id>/login/", people_views.oidc_sign_in, name="oidc_sign_in"),
    path("accounts/profile/", people_views.profile, name="profile"),
    path("accounts/activity/", audit_views.activity, name="activity"),
    path("accounts/sessions/<int:session_id>/end/", people_views.end_session, name="end_session"),
    path("accounts/delete/", people_views.end_account, name="delete_account"),
]
