"""Writers have the name by which people know the job."""

from __future__ import annotations

import pytest

from lakelock.identity import WriterIdentity, job_name

AIRFLOW = {"AIRFLOW_CTX_DAG_ID": "orders", "AIRFLOW_CTX_TASK_ID": "backfill"}
DATABRICKS = {"DB_IS_JOB_CLUSTER": "TRUE", "DB_CLUSTER_NAME": "job-7-run-9-main"}


@pytest.mark.parametrize(
    ("environment", "arguments", "spark_name", "name"),
    [
        ({}, ["/jobs/load_orders.py", "--day", "1"], "", "load_orders.py"),
        ({}, ["/jobs/load_orders.py"], "pyspark-shell", "load_orders.py"),
        ({}, ["/jobs/load_orders.py"], "orders-backfill", "orders-backfill"),
        ({}, ["/site-packages/shop/__main__.py"], "", "shop"),
        ({}, [""], "pyspark-shell", "python"),
        ({}, ["-c"], "", "python"),
        ({}, [], "", "python"),
        ({}, ["/x/ipykernel_launcher.py", "-f", "k.json"], "pyspark-shell", "notebook"),
        ({"JPY_SESSION_NAME": "/home/ann/look.ipynb"}, ["/x/ipykernel_launcher.py"], "", "look.ipynb"),
        (AIRFLOW, ["/bin/airflow"], "", "orders.backfill"),
        (AIRFLOW, ["/bin/airflow"], "arrow-spark", "orders.backfill"),
        (AIRFLOW, ["/bin/airflow"], "nightly", "nightly"),
        (DATABRICKS, ["/databricks/shell.py"], "Databricks Shell", "job-7-run-9-main"),
        ({**DATABRICKS, "DB_IS_JOB_CLUSTER": "FALSE"}, ["a.py"], "Databricks Shell", "a.py"),
    ],
)
def test_a_writer_is_named_as_its_job_is(environment: dict[str, str], arguments: list[str], spark_name: str, name: str) -> None:
    assert job_name(environment, arguments, spark_name) == name


def test_the_run_of_a_job_stands_beside_its_host_and_is_kept_in_records() -> None:
    writer = WriterIdentity("1", "orders-backfill", "node-7", 12, "ann", "0.1.0", "application_17_0004")
    assert str(writer) == "orders-backfill (ann@node-7, pid 12, application_17_0004)"
    assert WriterIdentity.from_dict(writer.as_dict()) == writer


def test_a_record_without_a_run_is_read_as_before() -> None:
    record = {"writer_id": "1", "application": "job", "host": "h", "pid": 3, "user": "u", "version": "0.1.0"}
    assert WriterIdentity.from_dict(record).as_dict() == record
