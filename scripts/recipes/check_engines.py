# SPDX-License-Identifier: Apache-2.0
"""The recipes of engines that start a command: JupyterHub, Airflow and Flyte."""
import json
import pathlib
import secrets
import socket
import subprocess
import urllib.request

from machine import check, limits, sees

HUB = pathlib.Path(__file__).with_name("hub.py")
# What the page does not say: addresses, folders, who may come in, the machine's driver, and no proxy before the hub.
HUB_SETTINGS = """\
import json
import os

from jupyterhub.proxy import Proxy


class Notes(Proxy):
    should_start = False
    routes = {{}}

    async def add_route(self, routespec, target, data):
        self.routes[routespec] = {{"routespec": routespec, "target": target, "data": data}}
        with open("routes.new", "w") as file:
            json.dump({{name: route["target"] for name, route in self.routes.items()}}, file)
        os.rename("routes.new", "routes")

    async def delete_route(self, routespec):
        self.routes.pop(routespec, None)

    async def get_all_routes(self):
        return self.routes


load_subconfig("jupyterhub_config.py")
c.JupyterHub.proxy_class = Notes
c.JupyterHub.bind_url = "http://127.0.0.1:{front}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{back}"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Spawner.environment = {driver}
c.Spawner.args = ["--allow-root"]
c.SimpleLocalProcessSpawner.home_dir_template = "{home}/{{username}}"
c.JupyterHub.services = [{{"name": "try", "api_token": "{token}"}}]
scopes = ["admin:users", "admin:servers", "access:servers"]
c.JupyterHub.load_roles = [{{"name": "try", "scopes": scopes, "services": ["try"]}}]
"""


def version(tools, package):
    """Of a package among those of engines, which an earlier --large installed."""
    python = pathlib.Path(tools.engines, "python")
    test = [python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
    return subprocess.run(test, capture_output=True, text=True).stdout.strip() if python.exists() else None


def missing(name):
    return None, f"{name} is not installed; scripts/recipes/try --large installs it"


def free_ports(count):
    """Ports that nobody has, all at once."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def ended(machine):
    """No job is left at work."""
    machine.wait("its job ends", lambda: not any(job["clients"] for job in machine.jobs()))


def hub(machine, page, tools):
    found = version(tools, "jupyterhub")
    if not found:
        return missing("JupyterHub")
    page.file("hub", machine.home)
    (front, back), token = free_ports(2), secrets.token_hex(16)
    (machine.home / "settings.py").write_text(HUB_SETTINGS.format(
        front=front, back=back, driver=machine.driver, home=machine.home, token=token))
    daemon = machine.start(["jupyterhub", "-f", "settings.py"])
    machine.wait("the hub listens", lambda: answers(daemon, back))
    machine.let_go()
    cell = f"%run {machine.home}/train.py\n!partage ps"
    words = [pathlib.Path(tools.engines, "python"), HUB, f"http://127.0.0.1:{back}", "routes", token, cell]
    with subprocess.Popen(words, cwd=machine.home, env=machine.environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as user:
        line = user.stdout.readline()
        check(line, "what a user sees", machine.output()[-3000:])
        said = json.loads(line)
        for note in machine.seen(2):
            sees(note, 4)
        check("4 GiB" in said["first"] and "4 GiB" in said["again"], said)
        # The server and its kernels are one job.
        jobs = machine.jobs()
        check([limits(job) for job in jobs] == [[4]], jobs)
        user.stdin.close()
        check(user.wait(timeout=60) == 0, machine.output()[-2000:])
    ended(machine)
    queued(machine, f"http://127.0.0.1:{back}/hub/api/users/bob", token)
    daemon.terminate()
    daemon.wait(timeout=60)
    return f"JupyterHub {found}: log in, spawn, cell, a kernel started again, stop, a full GPU; without its proxy"


def queued(machine, bob, token):
    """On full GPUs another user's server waits, the hub's log says for whom, and it starts once there is room."""
    holders = [machine.start(["partage", "run", "-m", "14GiB", "--", "sleep", "600"]) for _ in range(2)]
    machine.wait("both GPUs are full", lambda: len(machine.jobs()) == 2)
    for address in (bob, f"{bob}/server"):
        request = urllib.request.Request(address, b"", {"Authorization": f"token {token}"}, method="POST")
        urllib.request.urlopen(request, timeout=60).close()
    machine.wait("the hub's log says why", lambda: "waiting: needs 4 GiB" in machine.output())
    holders[0].terminate()
    machine.wait("the server starts", lambda: "/user/bob/" in json.loads((machine.home / "routes").read_text()))
    check(sorted(sum(map(limits, machine.jobs()), [])) == [4, 14], machine.jobs())
    holders[1].terminate()


def answers(daemon, port):
    check(daemon.poll() is None, "the hub has ended")
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def tried(machine, words):
    """A program of an engine is held at a quarter of a GPU, and the engine ends well."""
    engine = machine.start(words)
    sees(machine.seen(1)[0], 4)
    job = machine.working(1)[0]
    check(limits(job) == [4], job)
    machine.let_go()
    check(engine.wait(timeout=120) == 0, machine.output()[-3000:])
    return job


def flyte(machine, page, tools):
    found = version(tools, "flytekit")
    if not found:
        return missing("Flyte")
    tried(machine, ["python", page.file("flyte", machine.home)])
    # A task whose program fails is a failed task.
    page.file("flyte", machine.home)
    (machine.home / "train.py").write_text("raise SystemExit(3)\n")
    code = machine.start(["python", "workflow.py"]).wait(timeout=120)
    check(code != 0 and "3" in machine.output(), machine.output()[-2000:])
    return f"flytekit {found}, run on this machine"


def airflow(machine, page, tools):
    found = version(tools, "apache-airflow")
    if not found:
        return missing("Airflow")
    page.file("airflow", machine.home)
    machine.environment |= {"AIRFLOW_HOME": str(machine.home / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    code, output, errors = machine.shell("airflow db migrate && airflow dags reserialize", timeout=240)
    check(code == 0, output[-2000:], errors[-2000:])
    job = tried(machine, ["airflow", "dags", "test", "train"])
    check(job["name"] == "train", job)
    return f"Airflow {found}: airflow dags test"
