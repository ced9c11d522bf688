from django.db import migrations, models

SUMS = (
    "requests", "errors", "input_units", "cache_read_units", "output_units", "page_units", "character_units",
    "amount_ppt",
)  # fmt: skip
# What is summed already has the new sums too: else its days would say that nothing was used.
FILL = (
    "INSERT INTO billing_summary"
    f" (level, starts_at, team_id, key_id, member_id, model, endpoint, source, {', '.join(SUMS)})"
    f" SELECT 10, starts_at, team_id, 0, 0, '', '', '', {', '.join(f'SUM({name})' for name in SUMS)}"
    " FROM billing_summary WHERE level = 2 GROUP BY team_id, starts_at"
)  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_cell_months_by_model")]

    operations = [
        migrations.AlterField(
            model_name="summary",
            name="level",
            field=models.PositiveSmallIntegerField(
                choices=[
                    (1, "Model Quarter"),
                    (2, "Model Day"),
                    (3, "Key Day"),
                    (4, "Member Day"),
                    (5, "Model Month"),
                    (6, "Key Month"),
                    (7, "Member Month"),
                    (8, "Cell Month"),
                    (9, "Team Quarter"),
                    (10, "Team Day"),
                ]
            ),
        ),
        migrations.RunSQL(FILL, "DELETE FROM billing_summary WHERE level = 10"),
    ]
