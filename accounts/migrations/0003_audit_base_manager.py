from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_seal_second_factors")]
    operations = [
        migrations.AlterModelOptions(
            name="auditentry",
            options={
                "base_manager_name": "objects",
                "ordering": ["-at", "-id"],
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit log",
            },
        ),
    ]
