# SPDX-License-Identifier: Apache-2.0
"""Disks that fill in the middle of an installation, at each of its files: the host is as it was."""

import re

from packages import NEWER
from room import PAGE, same
from trial import Trial, grows, holds

FULL = r"cannot (write|make) (\S+): no space left on device(; everything before it is undone)?$"
# /usr is a disk of its own in some of the trials.
EVERYWHERE = ("/", "/usr", "/run", "/dev/shm")
HOST = {"PARTAGE_SOCKET_DIR": "/run/partage"}


class FullDisk(Trial):
    name = "a full disk"
    variables = HOST

    @property
    def checks(self):
        yield self.leaves_a_host_without_partage_as_it_was
        yield self.leaves_the_version_that_is_there_at_work
        yield self.of_etc_or_run_leaves_the_host_as_it_was
        yield self.leaves_no_half_package
        yield self.leaves_the_package_that_is_there_at_work

    def sizes(self):
        """Room for some files of an installation and a part of the next, for each of them."""
        programs, sizes, room = self.packages.programs, [], 0
        for file in sorted(programs.glob("bin/*")) + sorted(programs.glob("lib/partage/*")):
            size = file.stat().st_size
            sizes.append(room + size // 2)
            room += -(-size // PAGE) * PAGE
        return [*sizes, *(room + few * PAGE for few in range(0, 40, 4))]

    def refused(self, program):
        """The path at which the installation fails, or None where it had room enough."""
        code, said = self.room.tell(program, "install", **HOST)
        if code == 0:
            return None
        found = re.search(FULL, said, re.M)
        assert found, said
        return found.group(2)

    # ---- the checks, in order ----------------------------------------------------------------------------------

    def leaves_a_host_without_partage_as_it_was(self):
        archives = [self.packages.archive, self.packages.other_archive(NEWER)]
        self.programs = []
        for archive in archives:
            self.room.run("tar", "-C", "/root", "-xf", self.room.put(archive, "/root"))
            self.programs.append(f"/root/{archive.name.removesuffix('.tar.gz')}/bin/partage")
        self.room.gpus(self.packages.programs)
        self.room.disk("/usr/local")
        self.before = self.room.state("/usr/local", "/run")
        failed = self.fill("/usr/local", self.programs[0], self.sizes(), self.before)
        places = {"/usr/local/bin/partage", "/usr/local/bin/partaged", "/usr/local/lib/partage/libpartage.so"}
        assert places <= failed and len(failed) > 6, f"failed at {sorted(failed)}"

    def fill(self, disk, program, sizes, before):
        """Where it failed; it ends installed."""
        failed, used = set(), self.room.used(disk)
        for size in sizes:
            self.room.resize(disk, used + size)
            place = self.refused(program)
            if place is None:
                break
            failed.add(place)
            same(before, self.room.state("/usr/local", "/run"))
        self.room.resize(disk, 1 << 30)
        self.room.run(program, "install", **HOST)
        return failed

    def leaves_the_version_that_is_there_at_work(self):
        job = self.job("partage", "bob")
        before, brokers = self.room.state("/usr/local"), self.room.brokers()
        used = self.room.used("/usr/local")
        failed = set()
        for size in self.sizes()[:3]:
            self.room.resize("/usr/local", used + size)
            failed.add(self.refused(self.programs[1]))
            same(before, self.room.state("/usr/local"))
            assert self.room.brokers().keys() == brokers.keys(), "another broker"
            grows(job)
        assert None not in failed and len(failed) > 1, f"failed at {failed}"
        self.room.resize("/usr/local", 1 << 30)
        self.room.run(self.programs[1], "install", **HOST)
        assert self.room.brokers().keys() != brokers.keys()
        grows(job)
        job.end()
        self.room.run("partage", "uninstall", **HOST)
        self.room.run("rm", "-r", "/etc/partage")
        same(self.before, self.room.state("/usr/local", "/run"))

    def of_etc_or_run_leaves_the_host_as_it_was(self):
        self.room.disk("/etc")
        before = self.room.state("/usr/local", "/run")
        for disk, steps in (("/etc", 12), ("/run", 3)):
            used, failed = self.room.used(disk), 0
            for pages in range(steps):
                self.room.resize(disk, used + pages * PAGE)
                code, said = self.room.tell(self.programs[0], "install", **HOST)
                if code == 0:
                    break
                failed += 1
                assert "undone but for" not in said, f"{code}: {said}"
                same(before, self.room.state("/usr/local", "/run"))
            assert failed, f"{disk} was never full"
            self.room.resize(disk, 1 << 30)
            if code == 0:
                self.room.run("partage", "uninstall", **HOST)
                self.room.run("rm", "-r", "/etc/partage")
        self.room.run("umount", "/etc")
        self.room.run("umount", "/usr/local")

    def leaves_no_half_package(self):
        file = self.room.put(self.packages.deb, "/opt")
        self.newer = self.room.put(self.packages.other_deb(NEWER), "/opt")
        self.room.layer("/usr")
        before = self.room.state(*EVERYWHERE)
        used = self.room.used("/run/disk")
        for size in self.sizes()[:4]:
            self.room.resize("/run/disk", used + size)
            code, said = self.room.tell("dpkg", "-i", file)
            assert code != 0 and "No space left on device" in said, f"{code}: {said}"
            same(before, self.room.state(*EVERYWHERE))
            status = self.room.tell("dpkg", "-s", "partage")[1]
            assert "Status: install ok not-installed" in status, status
        self.room.resize("/run/disk", 1 << 30)
        self.room.run("dpkg", "-i", file)

    def leaves_the_package_that_is_there_at_work(self):
        self.room.run("partage", "install", **HOST)
        job = self.job("partage", "bob")
        before = self.room.state("/usr")
        self.room.resize("/run/disk", self.room.used("/run/disk") + self.sizes()[1])
        code, said = self.room.tell("dpkg", "-i", self.newer)
        assert code != 0 and "No space left on device" in said, f"{code}: {said}"
        same(before, self.room.state("/usr"))
        status = self.room.run("dpkg", "-s", "partage")
        assert "Status: install ok installed" in status and NEWER not in status, status
        grows(job)
        self.kill_broker()
        holds(job)
        self.room.run("partage", "install", **HOST)
        grows(job)
        job.end()
