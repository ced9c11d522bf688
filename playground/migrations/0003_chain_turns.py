"""Conversations were lists of turns: each turn becomes the child of the one before it."""

from django.db import migrations
from django.db.models import OuterRef, Subquery


def chain(apps, schema_editor):
    Turn = apps.get_model("playground", "Turn")
    before = Turn.objects.filter(conversation=OuterRef("conversation"), id__lt=OuterRef("id")).order_by("-id")
    Turn.objects.filter(parent=None).update(parent_id=Subquery(before.values("id")[:1]))


class Migration(migrations.Migration):
    dependencies = [("playground", "0002_branches_images_shares")]

    operations = [migrations.RunPython(chain, migrations.RunPython.noop, elidable=True)]
