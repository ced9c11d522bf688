from django.urls import path

from playground import (
    asking_views,
    catalog_views,
    chat_views,
    compare_views,
    conversation_views,
    share_views,
    turn_views,
)

app_name = "playground"

conversation = "playground/c/<uuid:conversation_id>/"
turn = conversation + "turns/<int:turn_id>/"

urlpatterns = [
    path("", catalog_views.home, name="home"),
    path("models/", catalog_views.models, name="models"),
    path("models/<path:model_id>", catalog_views.model, name="model"),
    path("playground/", chat_views.new_chat, name="chat"),
    path("playground/conversations/", chat_views.conversations, name="conversations"),
    path("playground/model/", chat_views.model_controls, name="model_controls"),
    path("playground/code/", chat_views.code, name="code"),
    path("playground/messages/", asking_views.send, name="send"),
    path("playground/compare/", compare_views.compare, name="compare"),
    path("playground/compare/<uuid:conversation_id>/", compare_views.comparison, name="comparison"),
    path("playground/compare/<uuid:conversation_id>/stream/", compare_views.compare_stream, name="compare_stream"),
    path(conversation, chat_views.conversation, name="conversation"),
    path(conversation + "rename/", conversation_views.rename, name="rename"),
    path(conversation + "pin/", conversation_views.pin, name="pin"),
    path(conversation + "delete/", conversation_views.delete, name="delete"),
    path(conversation + "restore/", conversation_views.restore, name="restore"),
    path(conversation + "export.<str:form>", conversation_views.export, name="export"),
    path(conversation + "share/", share_views.share, name="share"),
    path(conversation + "unshare/", share_views.unshare, name="unshare"),
    path(conversation + "images/<int:image_id>/", turn_views.image, name="image"),
    path(turn, turn_views.turn, name="turn"),
    path(turn + "stream/", turn_views.stream, name="stream"),
    path(turn + "stop/", turn_views.stop, name="stop"),
    path(turn + "meter/", turn_views.meter, name="meter"),
    path(turn + "again/", asking_views.answer_again, name="answer_again"),
    path(turn + "edit/", asking_views.edit, name="edit"),
    path(turn + "results/", asking_views.give_results, name="give_results"),
    path(turn + "show/", turn_views.show_branch, name="show_branch"),
    path(turn + "delete/", turn_views.delete_turn, name="delete_turn"),
    path(turn + "restore/", turn_views.restore_turn, name="restore_turn"),
    path("playground/shared/<str:token>/", share_views.shared, name="shared"),
    path("playground/shared/<str:token>/images/<int:image_id>/", share_views.shared_image, name="shared_image"),
    path("playground/shared/<str:token>/copy/", share_views.copy_shared, name="copy_shared"),
]
