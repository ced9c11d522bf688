"""Many rows in one statement: a JSON array of objects is the only parameter, the database takes it apart.

Object keys are column names. UUIDs are 32 hex digits, times "YYYY-MM-DD HH:MM:SS[.ffffff]" in UTC, JSON fields
are nested as they are. A key that is absent or null becomes the field's default, or NULL where it has none.
Text longer than its column is cut: what an upstream said must never cost us the row.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from django.db import connection
from django.db.models import AutoField, CharField, DateTimeField, Field, Model

# PostgreSQL's text has no NUL. The escape may itself follow escaped backslashes, hence the pairs.
_NUL_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")

type _Fields = tuple[Field[Any, Any], ...]


def insert_json(
    model: type[Model],
    json_array: bytes | str,
    *,
    columns: tuple[str, ...] | None = None,
    on_conflict: str = "",
) -> int:
    """Insert the array's rows, all or none, and return how many were written.

    `columns` limits the statement to these (all but an automatic key without it); `on_conflict` is SQL after
    `ON CONFLICT`, e.g. `DO NOTHING` (a constant of the code, never data). SQLite needs JSON1's 64-bit integers,
    PostgreSQL takes the same: larger numbers are the caller's to refuse.
    """
    text = json_array if isinstance(json_array, str) else json_array.decode()
    if "\\u0000" in text:
        text = _NUL_ESCAPE.sub(r"\1\\ufffd", text)
    statement, defaults = _statement(connection.vendor, model, columns, on_conflict)
    parameters = [field.get_db_prep_save(field.get_default(), connection) for field in defaults]
    with connection.cursor() as cursor:
        cursor.execute(statement, [*parameters, text])
        return int(cursor.rowcount)


@lru_cache(maxsize=64)
def _statement(
    vendor: str, model: type[Model], columns: tuple[str, ...] | None, on_conflict: str
) -> tuple[str, _Fields]:
    """The SQL, and the fields whose defaults precede the JSON among its parameters."""
    fields = _fields(model, columns)
    values = [_from_sqlite(field) if vendor == "sqlite" else _from_postgresql(field) for field in fields]
    quoted = ", ".join(_quote(field.column) for field in fields)
    source = "json_each(%s)" if vendor == "sqlite" else _recordset(fields)
    # `WHERE true`: without it SQLite takes the ON of ON CONFLICT for a join's.
    statement = (
        f"INSERT INTO {_quote(model._meta.db_table)} ({quoted}) SELECT {', '.join(values)} FROM {source} WHERE true"  # noqa: S608 -- names of the model's own columns
    )
    if on_conflict:
        statement += f" ON CONFLICT {on_conflict}"
    return statement, tuple(field for field in fields if _has_default(field))


def _fields(model: type[Model], columns: tuple[str, ...] | None) -> _Fields:
    concrete = tuple(field for field in model._meta.concrete_fields if columns is None or field.column in columns)
    if columns is None:
        return tuple(field for field in concrete if not isinstance(field, AutoField))
    if missing := set(columns) - {field.column for field in concrete}:
        raise ValueError(f"{model.__name__} has no column {sorted(missing)}")
    return concrete


def _has_default(field: Field[Any, Any]) -> bool:
    return field.has_default() or (isinstance(field, CharField) and field.blank and not field.null)


def _or_default(expression: str, field: Field[Any, Any]) -> str:
    return f"COALESCE({expression}, %s)" if _has_default(field) else expression


def _from_sqlite(field: Field[Any, Any]) -> str:
    expression = f"json_extract(value, '$.{field.column}')"
    if isinstance(field, DateTimeField):
        # As Django writes whole seconds; otherwise an equal time would not compare as equal.
        expression = f"replace({expression}, '.000000', '')"
    elif isinstance(field, CharField):
        expression = f"substr({expression}, 1, {field.max_length})"
    return _or_default(expression, field)


def _from_postgresql(field: Field[Any, Any]) -> str:
    expression = f"r.{_quote(field.column)}"
    if isinstance(field, CharField):
        expression = f"left({expression}, {field.max_length})"
    return _or_default(expression, field)


def _recordset(fields: _Fields) -> str:
    columns = ", ".join(f"{_quote(field.column)} {_recordset_type(field)}" for field in fields)
    return f"json_to_recordset(%s::json) AS r({columns})"


def _recordset_type(field: Field[Any, Any]) -> str:
    return "text" if isinstance(field, CharField) else str(field.cast_db_type(connection))


def _quote(name: str | None) -> str:
    return str(connection.ops.quote_name(name or ""))
