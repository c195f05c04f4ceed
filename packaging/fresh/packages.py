# SPDX-License-Identifier: Apache-2.0
"""The three files that are tried, and files with the same programs under another version."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import threading
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIMULATED = ("cuda", "nvml", "nvrtc", "runtime", "blas")
LIBRARIES = ("libpartage.so", *(f"libpartage_sim_{name}.so" for name in SIMULATED))
PROGRAMS = ("partage", "partaged", "partage-demo-client")
# Another version has other bytes, too: what is behind the end of a program changes nothing in it.
REPLACED = re.compile(r".*/(partage|partaged|libpartage\.so)")
NEWER, OLDER = "0.2.0", "0.0.9"
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}


def said_by(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def only(folder, pattern):
    found = sorted(folder.glob(pattern))
    assert len(found) == 1, f"not one {pattern} in {folder}: {found}"
    return found[0]


def once_at_a_time(make):
    """Trials run beside each other, and some want the same file."""

    def locked(self, version):
        with self.lock:
            return make(self, version)

    return locked


class Packages:
    """`wheel`, `deb` and `archive` are the files, `programs` is the unpacked archive, `root` the repository."""

    root = ROOT

    def __init__(self, dist, folder):
        self.dist, self.folder, self.lock = dist, folder, threading.Lock()
        machine = os.uname().machine
        self.wheel = only(dist, f"partage-*_{machine}.whl")
        self.deb = only(dist, f"partage_*_{DEBIAN[machine]}.deb")
        self.archive = only(dist, f"partage-*-{machine}.tar.gz")
        said_by("tar", "-C", folder, "-xf", self.archive)
        self.programs = folder / self.archive.name.removesuffix(".tar.gz")
        self.version = self.wheel.name.split("-")[1]

    @classmethod
    def built(cls, build, folder):
        """Packs a build quickly."""
        programs, dist = folder / "programs", folder / "dist"
        programs.mkdir()
        for name in PROGRAMS + LIBRARIES:
            said_by("strip", "--strip-unneeded", "-o", programs / name, build / name)
        quickly = {**os.environ, "DEB_LEVEL": "0"}
        said_by(ROOT / "packaging/deb/pack", programs, dist, env=quickly)
        said_by(ROOT / "packaging/archive", programs, dist)
        packer = [sys.executable, ROOT / "packaging/wheel.py", "--programs", programs, "--out", dist, "--level", "1"]
        said_by(*packer)
        return cls(dist, folder)

    @once_at_a_time
    def other_deb(self, version):
        tree, file = self.folder / f"deb-{version}", self.folder / f"partage_{version}-1.deb"
        if not file.exists():
            said_by("dpkg-deb", "-R", self.deb, tree)
            control = tree / "DEBIAN/control"
            control.write_text(re.sub(r"^Version: .*", f"Version: {version}-1", control.read_text(), flags=re.M))
            mark(tree, version)
            said_by("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, file)
        return file

    @once_at_a_time
    def other_wheel(self, version):
        name = self.wheel.name.replace(self.version, version, 1)
        file = self.folder / name
        if file.exists():
            return file
        found, prefix = {}, f"partage-{version}"
        with zipfile.ZipFile(self.wheel) as wheel:
            for entry in wheel.infolist():
                path = re.sub(rf"^partage-{re.escape(self.version)}(?=\.)", prefix, entry.filename)
                content = wheel.read(entry)
                if path.endswith("/METADATA"):
                    content = content.replace(f"Version: {self.version}".encode(), f"Version: {version}".encode(), 1)
                if REPLACED.fullmatch(path):
                    content += version.encode()
                if not path.endswith("/RECORD"):
                    found[path] = (content, bool(entry.external_attr >> 16 & 0o100))
        described = importlib.util.spec_from_file_location("pack_wheel", ROOT / "packaging/wheel.py")
        packer = importlib.util.module_from_spec(described)
        described.loader.exec_module(packer)
        packer.write(file, found, f"{prefix}.dist-info/RECORD", 1)
        return file

    @once_at_a_time
    def other_archive(self, version):
        name = self.programs.name.replace(self.version, version, 1)
        file = self.folder / f"{name}.tar.gz"
        if not file.exists():
            said_by("cp", "-a", self.programs, self.folder / name)
            mark(self.folder / name, version)
            said_by("tar", "-C", self.folder, "--use-compress-program", "gzip -1", "-cf", file, name)
        return file


def mark(tree, version):
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink() and REPLACED.fullmatch(str(path)):
            with path.open("ab") as file:
                file.write(version.encode())
