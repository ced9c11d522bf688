from django.urls import path
from django.views.i18n import set_language

from accounts import views
from accounts.access import public

app_name = "accounts"
urlpatterns = [
    path("language/", public(set_language), name="set_language"),
    path("keys/", views.keys, name="keys"),
    path("keys/new/", views.create_key, name="create_key"),
    path("keys/<int:key_id>/revoke/", views.revoke, name="revoke_key"),
]
