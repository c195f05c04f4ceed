# SPDX-License-Identifier: Apache-2.0
"""Trials of a host for several users: by the Debian package, and by the archive and `partage install`."""

from packages import NEWER, OLDER
from room import changed, same
from trial import Trial, grows, holds

# What users own: copies of the library that their programs have loaded.
OF_USERS = r"/tmp/partage-\d+(/|$)"
HOST = {"PARTAGE_SOCKET_DIR": "/run/partage"}


class Host(Trial):
    variables = HOST

    def serves(self, partage):
        """Its broker runs, and binds other users. What was said."""
        said = self.room.run(partage, "install", **HOST)
        assert "\nshown " in said, said
        status = self.room.json("partage", "status", "--json", user="bob", **HOST)
        assert status["broker"]["kind"] == "managed", status
        return said

    def limits_jobs_of_root_and_of_users(self):
        for user in ("root", "bob"):
            self.limits("partage", user)

    def describes_containers(self):
        said = self.room.run("partage", "cdi", "generate", **HOST)
        assert "/etc/cdi/partage.json" in said, said

    def is_as_before(self):
        assert not self.room.processes(), f"left running: {self.room.processes()}"
        after = self.room.state()
        same(self.before, after, OF_USERS)
        for path in changed(self.before, after):
            assert path.startswith("+ ") and after[path[2:]].split()[2].split(":")[0] != "0:", path


class Package(Host):
    """dpkg installs it, and other versions under a job."""

    name = "the package"

    @property
    def checks(self):
        yield self.installs
        yield self.shows_the_demo
        yield self.serves_the_host
        yield self.limits_jobs_of_root_and_of_users
        yield self.describes_containers
        yield self.is_upgraded_and_downgraded_under_a_job
        yield self.is_removed_under_a_job
        yield self.goes_without_a_trace

    def dpkg(self, *words):
        return self.room.run("dpkg", *words)

    def installs(self):
        self.file = self.room.put(self.packages.deb, "/root")
        self.others = [self.room.put(self.packages.other_deb(version), "/root") for version in (NEWER, OLDER)]
        self.before = self.room.state()
        self.dpkg("-i", self.file)
        self.room.run("partage", "version", user="bob")

    def shows_the_demo(self):
        self.shows_demo("partage", "bob")

    def serves_the_host(self):
        self.room.gpus(self.packages.programs)
        self.serves("partage")

    def is_upgraded_and_downgraded_under_a_job(self):
        job = self.job("partage", "bob")
        for file in self.others:
            self.dpkg("-i", file)
            holds(job)
            (old,) = self.kill_broker()
            holds(job)
            self.serves("partage")
            (broker,) = self.room.brokers()
            assert broker != old
            grows(job)
            jobs = self.room.json("partage", "ps", "--json", user="bob", **HOST)["jobs"]
            assert len(jobs) == 1 and jobs[0]["user"] == "bob", jobs
        job.end()

    def is_removed_under_a_job(self):
        job = self.job("partage", "bob")
        self.dpkg("-r", "partage")
        assert not self.room.brokers(), self.room.brokers()
        holds(job)
        job.end()

    def goes_without_a_trace(self):
        self.dpkg("-P", "partage")
        self.is_as_before()


class Archive(Host):
    """`partage install` from where it was unpacked, and from another version under a job."""

    name = "the archive"

    @property
    def checks(self):
        yield self.installs
        yield self.shows_the_demo
        yield self.limits_jobs_of_root_and_of_users
        yield self.describes_containers
        yield self.is_upgraded_and_downgraded_under_a_job
        yield self.goes_under_a_job_without_a_trace

    def unpacked(self, archive):
        self.room.run("tar", "-C", "/root", "-xf", self.room.put(archive, "/root"))
        return f"/root/{archive.name.removesuffix('.tar.gz')}/bin/partage"

    def installs(self):
        program = self.unpacked(self.packages.archive)
        self.others = [self.unpacked(self.packages.other_archive(version)) for version in (NEWER, OLDER)]
        self.room.gpus(self.packages.programs)
        self.before = self.room.state()
        self.serves(program)

    def shows_the_demo(self):
        self.shows_demo("partage", "bob")

    def is_upgraded_and_downgraded_under_a_job(self):
        job = self.job("partage", "bob")
        for program in self.others:
            said = self.serves(program)
            assert "replaced   /usr/local/bin/partaged" in said, said
            grows(job)
            self.kill_broker()
            holds(job)
            assert "unchanged  /usr/local/bin/partaged" in self.serves(program)
            grows(job)
        job.end()

    def goes_under_a_job_without_a_trace(self):
        job = self.job("partage", "bob")
        said = self.room.run("partage", "uninstall", **HOST)
        assert "/etc/partage/partage.toml stays" in said, said
        holds(job)
        job.end()
        # As it says.
        self.room.run("rm", "-r", "/etc/partage")
        self.is_as_before()
