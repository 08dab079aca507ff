"""The picture of the README: four jobs on one table, as `lakelock timeline` shows them. `python -m tests.demo.picture`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import lakelock
from tests.browser import browser

PICTURE = Path(__file__).parents[2] / "docs" / "assets" / "timeline.png"
DAYS = [f"2026-11-{day:02}" for day in range(1, 7)]


def orders(day: str, first: int, customer: str) -> list[dict[str, object]]:
    return [{"order_id": first + n, "day": day, "customer": customer, "amount": 10.0} for n in range(50)]


def stream(table: lakelock.Table) -> None:
    """Small commits, one after the other, most of them of today."""
    for batch in range(10):
        table.upsert(orders(DAYS[-1], 10_000 + 25 * batch, "ann"))
        sleep(0.18)


def backfill(table: lakelock.Table) -> None:
    """One day after the other, and each takes its time."""
    for number, day in enumerate(DAYS):
        with table.transaction(tag="backfill") as tx:
            tx.upsert(orders(day, 1_000 * number, "cem"))
            sleep(0.4)


def correction(table: lakelock.Table) -> None:
    """Reads today, computes, and writes what it computed; others write today meanwhile."""

    def correct(tx: lakelock.TableTransaction) -> None:
        rows = tx.read(f"day = '{DAYS[-1]}' and order_id < 10100").to_pylist()
        sleep(0.35)
        tx.upsert([{**row, "amount": 11.0} for row in rows] or orders(DAYS[-1], 9_000, "eve"))

    sleep(0.3)
    for _ in range(3):
        table.run(correct)
        sleep(0.1)


def erasure(table: lakelock.Table) -> None:
    """A customer asks to be forgotten."""
    sleep(1.2)
    table.delete("customer = 'bob'")


def main() -> None:
    jobs: dict[str, Callable[[lakelock.Table], None]] = {
        "ingest stream": stream,
        "backfill": backfill,
        "correction": correction,
        "GDPR request 4711": erasure,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/orders"
        schema = "order_id bigint, day string, customer string, amount double"
        lakelock.create(path, schema=schema, key="order_id", partition_by="day").insert(orders(DAYS[2], 500, "bob"))
        with ThreadPoolExecutor(len(jobs)) as pool:
            running = [pool.submit(job, lakelock.open(path, application=name)) for name, job in jobs.items()]
            for each in running:
                each.result()
        page = Path(folder, "timeline.html")
        subprocess.run(["lakelock", "timeline", path, "--html", str(page)], check=True)
        page.write_text(page.read_text().replace(path, "/lake/orders"))  # the name of a temporary folder tells nobody anything
        size = ["--window-size=1400,600", "--force-device-scale-factor=1.25", "--hide-scrollbars"]
        quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile"]
        subprocess.run([browser(), *quiet, *size, f"--screenshot={PICTURE}", page.as_uri()], check=True, timeout=120)


if __name__ == "__main__":
    main()
