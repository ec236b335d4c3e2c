"""DuckDB's extension azure, loaded from the package that brings it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_azure
from places import ABFSS, FOLDER, LANDING_ZONE, SECRETS, new_table

EXTENSION = next(Path(duckdb_extension_azure.__file__).parent.glob("extensions/*/azure.duckdb_extension"))


def test_write_list_read():
    table = new_table()
    at = f"{ABFSS}/{LANDING_ZONE}/{table}"
    secrets = ", ".join(f"{name} '{value}'" for name, value in SECRETS.items())
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{EXTENSION}'")
        connection.execute("SET azure_transport_option_type = 'curl'")
        connection.execute(f"CREATE SECRET (TYPE azure, PROVIDER service_principal, ACCOUNT_NAME 'onelake', {secrets})")
        connection.execute(f"COPY (SELECT 1 AS id, 'Linz' AS city) TO '{at}/1.parquet'")
        assert (FOLDER / table / "1.parquet").read_bytes()[:4] == b"PAR1"
        assert connection.sql(f"FROM glob('{at}/*')").fetchone()[0].endswith(f"{table}/1.parquet")
        assert connection.sql(f"FROM '{at}/*.parquet'").fetchall() == [(1, "Linz")]
