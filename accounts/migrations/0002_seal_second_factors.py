from collections.abc import Callable

from django.db import migrations

from accounts.sealing import Unreadable, seal, unseal


def change(data: dict[str, object], by: Callable[[str], str]) -> dict[str, object]:
    changed = {name: by(data[name]) for name in ("secret", "seed") if isinstance(data.get(name), str)}
    if isinstance(data.get("migrated_codes"), list):
        changed["migrated_codes"] = [by(code) for code in data["migrated_codes"]]
    return data | changed


def sealed(text: str) -> str:
    try:
        unseal(text)
    except Unreadable:
        return seal(text)
    return text


def each(apps, by: Callable[[str], str]) -> None:
    factors = apps.get_model("mfa", "Authenticator").objects.filter(type__in=["totp", "recovery_codes"])
    for factor in factors:
        factor.data = change(factor.data, by)
        factor.save(update_fields=["data"])


def forwards(apps, schema_editor) -> None:
    each(apps, sealed)


def backwards(apps, schema_editor) -> None:
    each(apps, unseal)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("mfa", "0003_authenticator_type_uniq")]
    operations = [migrations.RunPython(forwards, backwards, elidable=True)]
