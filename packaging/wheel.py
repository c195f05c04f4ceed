#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs built programs as a wheel: the same bytes from the same files, whoever packs them and when.

usage: packaging/wheel.py --programs FOLDER [--partage FILE] [--arch x86_64|aarch64] [--out FOLDER] [--most BYTES]
                          [--level 1-9]
FOLDER holds the programs and libraries side by side, as a build leaves them. Environment: SOURCE_DATE_EPOCH, else the
time of the last commit, else 1980. Prints the wheel's path.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / "packaging" / "python"
PROGRAMS = ("partage", "partaged")
SIMULATED = ("cuda", "nvml", "nvrtc", "runtime", "blas")
LIBRARIES = ("libpartage.so", *(f"libpartage_sim_{name}.so" for name in SIMULATED))
CLIENT = "partage-demo-client"
COMPLETIONS = {
    "bash": "share/bash-completion/completions/partage",
    "fish": "share/fish/vendor_completions.d/partage.fish",
    "zsh": "share/zsh/site-functions/_partage",
}
# The programs are linked against this glibc (scripts/package).
GLIBC = "2_28"
# A wheel's times begin with DOS's.
FIRST_TIME = 315532800

METADATA = """\
Metadata-Version: 2.4
Name: partage
Version: {version}
Summary: Share a GPU between programs: a limit of memory and a share of time for each
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD-PARTY-NOTICES
Keywords: gpu,cuda,sharing,quota,scheduling
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: System Administrators
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{description}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="where the built files lie")
    parser.add_argument("--partage", type=pathlib.Path, help="one that runs here, for what it says of itself")
    parser.add_argument("--arch", default=platform.machine(), help="which machines the programs are for")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="where the wheel goes")
    parser.add_argument("--most", type=int, help="refuse a larger wheel")
    parser.add_argument("--level", type=int, default=9, help="how hard to compress: 1 to 9")
    arguments = parser.parse_args()
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    tag = f"py3-none-manylinux_{GLIBC}_{arguments.arch}"
    wheel = arguments.out / f"partage-{version}-{tag}.whl"
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = f"partage-{version}.dist-info/RECORD"
    found = entries(arguments.programs, version, tag)
    data = f"partage-{version}.data/data"
    for path, content in pages(arguments.partage or arguments.programs / "partage").items():
        found[f"{data}/{path}"] = (content, False)
    found[f"partage-{version}.dist-info/licenses/THIRD-PARTY-NOTICES"] = (notices(arguments.arch), False)
    write(wheel, found, record, arguments.level)
    size = wheel.stat().st_size
    if arguments.most is not None and size > arguments.most:
        sys.exit(f"{wheel} has {size:,} bytes, more than {arguments.most:,}")
    print(wheel)


def entries(programs, version, tag):
    """Path in the wheel: content, and whether it is a program. Without what the command line says about itself."""
    data, info = f"partage-{version}.data", f"partage-{version}.dist-info"
    found = {}
    for file in sorted((PYTHON / "partage").glob("*")):
        if file.is_file():
            found[f"partage/{file.name}"] = (file.read_bytes(), False)
    for name in PROGRAMS:
        found[f"{data}/scripts/{name}"] = ((programs / name).read_bytes(), True)
    for name in LIBRARIES:
        found[f"{data}/data/lib/partage/{name}"] = ((programs / name).read_bytes(), False)
    found[f"{data}/data/lib/partage/{CLIENT}"] = ((programs / CLIENT).read_bytes(), True)
    description = (ROOT / "README.md").read_text()
    found[f"{info}/METADATA"] = (METADATA.format(version=version, description=description).encode(), False)
    wheel = f"Wheel-Version: 1.0\nGenerator: partage\nRoot-Is-Purelib: false\nTag: {tag}\n"
    found[f"{info}/WHEEL"] = (wheel.encode(), False)
    found[f"{info}/licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    return found


def notices(arch):
    """The licences of what is linked into the programs."""
    target = f"{arch}-unknown-linux-gnu"
    asked = [sys.executable, ROOT / "packaging" / "third_party.py", "--target", target, "notices"]
    return subprocess.run(asked, check=True, capture_output=True).stdout


def pages(partage):
    """What the command line says about itself: completions, and manual pages where it writes them."""
    found = {}
    for shell, path in COMPLETIONS.items():
        found[path] = subprocess.run([partage, "completions", shell], check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        written = subprocess.run([partage, "man", folder], capture_output=True)
        if written.returncode == 0:
            for page in sorted(pathlib.Path(folder).rglob("*.[1-8]")):
                found[f"share/man/man{page.suffix[1:]}/{page.name}"] = page.read_bytes()
    return found


def moment():
    """What every entry has as its time."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        asked = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
        try:
            epoch = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError):
            # A source archive, or a machine without git.
            epoch = FIRST_TIME
    return time.gmtime(max(int(epoch), FIRST_TIME))[:6]


def write(wheel, found, record, level):
    when, lines = moment(), []
    # Beside its place, so that nobody finds half a wheel.
    partial = wheel.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(partial, "w") as archive:

        def add(path, content, is_program):
            entry = zipfile.ZipInfo(path, when)
            entry.create_system = 3
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, level)

        for path, (content, is_program) in sorted(found.items()):
            add(path, content, is_program)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(content)}\n")
        lines.append(f"{record},,\n")
        add(record, "".join(lines).encode(), False)
    partial.replace(wheel)


if __name__ == "__main__":
    main()
