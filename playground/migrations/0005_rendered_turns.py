import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("playground", "0004_documents_speech_decisions"),
    ]

    operations = [
        migrations.CreateModel(
            name="RenderedTurn",
            fields=[
                (
                    "turn",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="rendered",
                        serialize=False,
                        to="playground.turn",
                    ),
                ),
                ("maker", models.CharField(max_length=16)),
                ("content", models.BinaryField()),
                ("reasoning", models.BinaryField()),
            ],
        ),
    ]
