# SPDX-License-Identifier: Apache-2.0
"""Draws docs/guides/top.svg: `partage top` in a pseudo-terminal. Or measures what it costs. `screenshot` calls this."""
import argparse
import html
import json
import os
import pathlib
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

import pexpect
import pyte

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/pages"))
from terminal import Terminal  # noqa: E402

COLUMNS, LINES = 120, 22
CELL, LINE, EDGE = 8.4, 18, 14
PAPER, INK = "#1b1f24", "#d0d7de"
# As the emulator names the first eight of 256 colours.
COLOURS = {
    "00cd00": "#57ab5a",
    "cdcd00": "#d4a72c",
    "cd0000": "#f47067",
    "00cdcd": "#39c5cf",
    "cd00cd": "#dcbdfb",
}
MAGIC, LAST = b"PTGJ", 1
# How long `top` is measured, in seconds.
MEASURED = 30


class Top:
    """`partage top` in a terminal of its own, read by a terminal emulator."""

    def __init__(self, binary, environment, size=(LINES, COLUMNS)):
        self.screen = pyte.Screen(size[1], size[0])
        self.stream = pyte.ByteStream(self.screen)
        environment = environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.child = pexpect.spawn(str(binary), ["top"], env=environment, dimensions=size, timeout=None)

    def read(self, seconds):
        """Shows what comes within these seconds; answers how many bytes came."""
        end, count = time.monotonic() + seconds, 0
        while (left := end - time.monotonic()) > 0:
            try:
                said = self.child.read_nonblocking(1 << 16, timeout=left)
            except pexpect.TIMEOUT:
                break
            count += len(said)
            self.stream.feed(said)
        return count

    def until(self, what, limit=60):
        end = time.monotonic() + limit
        while not what(self.screen.display):
            if time.monotonic() > end:
                raise SystemExit("\n".join(["top does not show what is waited for:", *self.screen.display]))
            self.read(0.2)

    def close(self):
        self.child.send("q")
        self.child.expect(pexpect.EOF, timeout=10)
        self.child.close(force=True)


def runs(line, columns):
    """A line as runs of cells that look alike: (column, text, colour, is bold, is reversed)."""
    last = None
    for column in range(columns):
        cell = line[column]
        look = (COLOURS.get(cell.fg, INK), cell.bold, cell.reverse)
        if last and last[2:] == look:
            last = (last[0], last[1] + cell.data, *look)
        else:
            if last:
                yield last
            last = (column, cell.data, *look)
    if last:
        yield last


def svg(screen):
    width, height = COLUMNS * CELL + 2 * EDGE, LINES * LINE + 2 * EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        "<title>partage top</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        f'<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14" '
        f'fill="{INK}" xml:space="preserve" style="white-space: pre">',
    ]
    for number in range(LINES):
        top = EDGE + number * LINE
        for column, text, colour, is_bold, is_reversed in runs(screen.buffer[number], COLUMNS):
            if not text.strip() and not is_reversed:
                continue
            if not is_reversed:
                column, text = column + len(text) - len(text.lstrip()), text.strip()
            left, length = EDGE + column * CELL, len(text) * CELL
            if is_reversed:
                parts.append(f'<rect x="{left:.1f}" y="{top}" width="{length:.1f}" height="{LINE}" fill="{colour}"/>')
            fill = PAPER if is_reversed else colour
            weight = ' font-weight="bold"' if is_bold else ""
            parts.append(
                f'<text x="{left:.1f}" y="{top + LINE - 5}" textLength="{length:.1f}" fill="{fill}"{weight}>'
                f"{html.escape(text)}</text>"
            )
    return "\n".join([*parts, "</g>", "</svg>", ""])


def draw(binaries):
    with tempfile.TemporaryDirectory(prefix="partage-top-") as folder:
        home = pathlib.Path(folder) / "home"
        home.mkdir()
        # `busy.py GIB`: as the pages' busy.py, with so much memory.
        busy = (ROOT / "cuda-tests/programs/busy.py").read_text()
        allocate = 'held = c.c_uint64()\ncall("cuMemAlloc_v2", c.byref(held), c.c_size_t(int(sys.argv[1]) << 30))\n'
        begin = 'call("cuModuleLoadData"'
        endless = busy.replace('float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")', 'float("inf")')
        assert begin in busy and endless != busy
        (home / "busy.py").write_text(endless.replace(begin, allocate + begin, 1))
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("PARTAGE_", "LD_", "CUDA"))}
        keep.pop("NO_COLOR", None)
        path = f"{binaries}:{pathlib.Path(sys.executable).parent}:{keep.get('PATH', '')}"
        # The broker may be in a pid namespace.
        keep["PARTAGE_PID_NAMESPACE"] = "any"
        login = {"PATH": path, "HOME": str(home), "USER": "root", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        environment = keep | login
        machine = f"top{os.getpid()}"
        terminal = Terminal(binaries, machine, ["--gpus", "2", "--memory", "16GiB"], home.parent, environment)
        try:
            for command in (
                "partage run -m 8GiB -c 60% -g 0 --name training -- python busy.py 6 >1.log 2>&1 &",
                "partage run -m 4GiB -g 0 --name eval -- python busy.py 2 >2.log 2>&1 &",
                "partage run -m 12GiB -g 1 --compute-max 50% --name sweep -- python busy.py 9 >3.log 2>&1 &",
                "sleep 1; partage run -m 12GiB -g 1 --name next -- python busy.py 9 >4.log 2>&1 &",
            ):
                terminal.run(command)
            if not terminal.until("test $(partage ps --json | grep -o '\"attached\"' | wc -l) -ge 3"):
                raise SystemExit("the jobs did not begin")
            variables = dict(line.split("=", 1) for line in terminal.run("env") if "=" in line)
            keep = ("PARTAGE_SIM_DIR", "PARTAGE_SOCKET_DIR", "LD_LIBRARY_PATH", "PARTAGE_PID_NAMESPACE")
            top = Top(binaries / "partage", environment | {name: variables[name] for name in keep if name in variables})
            top.until(lambda lines: any("training" in line for line in lines))
            top.read(50)
            picture = svg(top.screen)
            print("\n".join(top.screen.display))
            top.close()
        finally:
            terminal.close()
    (ROOT / "docs/guides/top.svg").write_text(picture)
    print("written: docs/guides/top.svg")


def job(number):
    gib = 1 << 30
    gpu = number % 8
    device = {
        "index": gpu, "uuid": f"GPU-0000000{gpu}-0000-0000-0000-000000000000", "model": "NVIDIA H200",
        "limit_bytes": 2 * gib, "request_bytes": 2 * gib, "used_bytes": gib, "peak_bytes": gib, "granted_bytes": gib,
        "time": {"got_1s": time.monotonic() * 7 % 1 * (number % 5) / 60, "got_60s": 0.01, "share": 0.02,
                 "state": "open", "regime": "overlap", "used_ns": time.monotonic_ns() // 60},
    }
    return {
        "job": f"j{number}", "name": f"worker-{number}", "user": f"user{number % 7}", "uid": 1000, "state": "running",
        "pid": 1000 + number, "command": ["python", "train.py", "--epochs", str(number)], "labels": [],
        "devices": [device], "denied": {"limit": 0, "card_full": 0, "no_broker": 0, "overhead": 0}, "started_ns": 1,
        "clients": [{"pid": 1000 + number, "state": "attached", "used_bytes": [gib]}], "is_strict": False, "notes": [],
    }


def device(gpu, jobs):
    gib = 1 << 30
    return {
        "index": gpu, "uuid": f"GPU-0000000{gpu}-0000-0000-0000-000000000000", "model": "NVIDIA H200", "state": "ok",
        "total_bytes": 141 * gib, "usable_bytes": 140 * gib, "committed_bytes": 126 * gib, "used_bytes": 63 * gib,
        "promised_bytes": 126 * gib, "unmanaged_bytes": 0,
        "jobs": [f"j{number}" for number in range(1, jobs + 1) if number % 8 == gpu],
    }


def serve(path, jobs):
    """Plays a broker of eight GPUs with so many jobs, all of whose numbers move."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(16)
    while True:
        connection = listener.accept()[0]
        asked = json.loads(connection.recv(1 << 17)[8:])
        if asked["verb"] == "status":
            broker = {"pid": os.getpid(), "version": "0", "kind": "private", "socket_dir": str(path.parent.parent)}
            broker |= {"driver": "ok", "jobs": jobs, "clients": jobs, "uptime_ns": 1}
            devices = [device(gpu, jobs) for gpu in range(8)]
            reply = {"reply": "status", "broker": broker, "devices": devices, "queue": []}
        else:
            reply = {"reply": "ps", "jobs": [job(number) for number in range(1, jobs + 1)], "unmanaged": []}
        document = json.dumps(reply, separators=(",", ":")).encode()
        size = 16384
        chunks = [document[at : at + size] for at in range(0, len(document), size)]
        for number, chunk in enumerate(chunks):
            is_last = LAST if number + 1 == len(chunks) else 0
            connection.send(MAGIC + struct.pack("<HH", is_last, 0) + chunk)
        connection.close()


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(binaries, jobs):
    with tempfile.TemporaryDirectory(prefix="ptop") as folder:
        sockets = pathlib.Path(folder) / "s"
        (sockets / "client").mkdir(parents=True, mode=0o700)
        sockets.chmod(0o700)
        server = threading.Thread(target=serve, args=(sockets / "client/client.sock", jobs), daemon=True)
        server.start()
        environment = {"PATH": os.environ["PATH"], "PARTAGE_SOCKET_DIR": str(sockets), "HOME": folder}
        top = Top(binaries / "partage", environment, (60, 200))
        top.until(lambda lines: any("worker-1" in line for line in lines))
        top.read(3)
        before, began = processor_seconds(top.child.pid), time.monotonic()
        written = top.read(MEASURED)
        took = time.monotonic() - began
        part = (processor_seconds(top.child.pid) - before) / took
        print(f"top beside {jobs} jobs, 200x60: {part:.2%} of a core, {written / took:.0f} bytes a second")
        top.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--cost", type=int)
    options = parser.parse_args()
    if options.cost is None:
        draw(options.bin.resolve())
    else:
        cost(options.bin.resolve(), options.cost)
