from django.urls import path

from playground import catalog_views, views

app_name = "playground"

conversation = "playground/c/<uuid:conversation_id>/"
turn = conversation + "turns/<int:turn_id>/"

urlpatterns = [
    path("", catalog_views.home, name="home"),
    path("models/", catalog_views.models, name="models"),
    path("models/<path:model_id>", catalog_views.model, name="model"),
    path("playground/", views.new_chat, name="chat"),
    path("playground/conversations/", views.conversations, name="conversations"),
    path("playground/model/", views.model_controls, name="model_controls"),
    path("playground/code/", views.code, name="code"),
    path("playground/messages/", views.send, name="send"),
    path(conversation, views.conversation, name="conversation"),
    path(conversation + "again/", views.answer_again, name="answer_again"),
    path(conversation + "rename/", views.rename, name="rename"),
    path(conversation + "delete/", views.delete, name="delete"),
    path(turn, views.turn, name="turn"),
    path(turn + "stream/", views.stream, name="stream"),
    path(turn + "stop/", views.stop, name="stop"),
    path(turn + "meter/", views.meter, name="meter"),
]
