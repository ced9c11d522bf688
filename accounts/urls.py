from django.urls import path
from django.views.i18n import set_language

from accounts.access import public

app_name = "accounts"
urlpatterns = [
    path("language/", public(set_language), name="set_language"),
]
