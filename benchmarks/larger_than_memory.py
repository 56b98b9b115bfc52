"""How much memory tables take that need not fit into it, and how long CSV takes beside pyarrow's own reader.

    python benchmarks/larger_than_memory.py [--rows N] [--columns N] [--csv-rows N] [--csv-columns N] [--turns N]

Makes a Parquet table of single-precision numbers and two CSV tables in a temporary folder, which is also the cache, and
measures each way to use them in a process of its own. Peak memory is what the system counts for that process
(`ru_maxrss`): mapped pages count as long as they are in its address space, whoever else maps them. With worker
processes it is the largest sum over all processes of their proportional share (`Pss`), where a page that n
processes map counts as 1/n in each, looked at twenty times a second. Prints one table of ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MB = 1e6

RUN = """
rounds = 1
learner = "logistic"

[data]
name = "parquet"
path = "{path}"
target = "y"
prepare = ["standardise"]
partition = {{ name = "iid", parties = 20 }}

[engine]
name = "local"
workers = {workers}
"""
_CODE = {
    "nothing": "import tequio.experiments.api, torch, sklearn",
    "arrow": "from pyarrow import csv; csv.read_csv(PATH)",
    "read": "from pathlib import Path; from tequio.data.inputs.tables import columns_from_file; "
            "columns_from_file(Path(PATH))",
    "dataset": "from tequio.data.inputs import read; read(PATH, target='y')",
}


def main() -> None:
    """Make the tables, measure, and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, usual in (("rows", 5_000_000), ("columns", 50), ("csv-rows", 1_000_000), ("csv-columns", 20),
                        ("turns", 3)):
        options.add_argument(f"--{name}", type=int, default=usual)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="tequio-large-") as place:
        folder = Path(place)
        print("| | raw MB | peak MB | peak / raw | seconds | seconds / pyarrow |\n|---|---:|---:|---:|---:|---:|")
        peak, _ = measured(folder, "nothing", Path())
        print(f"| a process that only imports | | {peak / MB:,.0f} | | | |")
        runs(folder, asked.rows, asked.columns)
        readers(folder, asked.csv_rows, asked.csv_columns, asked.turns)
        readers(folder, 200_000, 50, 1)


def runs(folder: Path, rows: int, columns: int) -> None:
    """One round of logistic regression at twenty parties, with all steps from the file to the model."""
    path, raw = made(folder / "table.parquet", rows, columns), rows * columns * 4
    what = f"`tequio run`, {rows:,} x {columns} float32"
    for name, workers in ((f"{what}, first time", 1), (f"{what}, from the cache", 1), (f"{what}, two workers", 2)):
        config = folder / "run.toml"
        config.write_text(RUN.format(path=path, workers=workers))
        command = [sys.executable, "-m", "tequio", "run", str(config), "--out", str(folder / f"run-{time.time_ns()}")]
        peak, seconds = watched(folder, command, together=workers > 1)
        print(f"| {name} | {raw / MB:,.0f} | {peak / MB:,.0f} | {peak / raw:.2f} | {seconds:.1f} | |", flush=True)
    path.unlink()


def readers(folder: Path, rows: int, columns: int, turns: int) -> None:
    """The columns of a CSV file, by pyarrow and by tequio, which takes turns with it and starts with an empty cache."""
    path = made(folder / f"table-{rows}.csv", rows, columns)
    raw = path.stat().st_size
    seen: dict[str, list[tuple[float, float]]] = {"arrow": [], "read": [], "again": [], "dataset": []}
    for _ in range(turns):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        for name in seen:
            seen[name].append(measured(folder, "read" if name == "again" else name, path))
    least = min(seconds for _, seconds in seen["arrow"])
    for name, what in (("arrow", "`pyarrow.csv.read_csv`"), ("read", "tequio, first time"),
                       ("again", "tequio, from the cache"), ("dataset", "tequio, to a dataset")):
        peak, seconds = max(peak for peak, _ in seen[name]), min(seconds for _, seconds in seen[name])
        print(f"| CSV of {rows:,} x {columns}, {what} | {raw / MB:,.0f} | {peak / MB:,.0f} | {peak / raw:.2f} "
              f"| {seconds:.2f} | {seconds / least:.2f} |", flush=True)
    path.unlink()


def made(path: Path, rows: int, columns: int) -> Path:
    """A table of random numbers, written in blocks by another process."""
    subprocess.run([sys.executable, __file__, "--make", str(path), str(rows), str(columns)], check=True)
    return path


def make(path: Path, rows: int, columns: int) -> None:
    """The table itself."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng, names = np.random.default_rng(0), [f"x{column}" for column in range(columns)]
    schema = pa.schema([(name, pa.float32()) for name in names] + [("y", pa.int8())])
    with (csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter)(path, schema) as file:
        for start in range(0, rows, 250_000):
            block = rng.standard_normal((columns, min(250_000, rows - start)), np.float32)
            target = (block[:5].sum(axis=0) > 0).astype(np.int8)
            file.write(pa.table([*block, target], schema=schema))


def measured(folder: Path, what: str, path: Path) -> tuple[float, float]:
    """Peak memory of a process that does something with a file, and how long it takes without start and imports."""
    imports, _, work = _CODE[what].rpartition("; ")
    code = f"import time; {imports or 'pass'}; start = time.perf_counter(); {work.replace('PATH', repr(str(path)))}; " \
           "print(time.perf_counter() - start)"
    peak, _ = watched(folder, [sys.executable, "-c", code], together=False, output=folder / "seconds")
    return peak, float((folder / "seconds").read_text())


def watched(folder: Path, command: list[str], *, together: bool, output: Path | None = None) -> tuple[float, float]:
    """Peak memory in bytes and seconds of a command: of its own process, or together with those that it starts."""
    start = time.perf_counter()
    with open(output or os.devnull, "w") as out:
        process = subprocess.Popen(command, stdout=out, env={**os.environ, "TEQUIO_CACHE": str(folder / "cache")})
    shares: list[int] = [0]
    done = threading.Event()
    watcher = threading.Thread(target=lambda: [shares.append(shared_bytes(process.pid))
                                               for _ in iter(lambda: done.wait(0.05), True)])
    if together:
        watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    done.set()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {process.returncode}")
    return max(shares) if together else usage.ru_maxrss * 1024, time.perf_counter() - start


def shared_bytes(process: int) -> int:
    """The proportional share of memory of a process and of all that it started."""
    try:
        tasks = Path(f"/proc/{process}/task")
        children = [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    own = next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
    return own + sum(map(shared_bytes, children))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        main()
