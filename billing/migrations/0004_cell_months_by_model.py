from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_quarters_of_a_team")]

    operations = [
        migrations.AddIndex(
            model_name="summary",
            index=models.Index(
                condition=models.Q(("level", 8)),
                fields=["team_id", "model", "starts_at"],
                name="cell_months_by_model",
            ),
        ),
    ]
