# SPDX-License-Identifier: Apache-2.0
"""Tries the metrics with Prometheus: names, rules, a scrape, each rule's question. `scripts/watch/try` calls this."""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging/prometheus"
PAGE = ROOT / "docs/metrics.md"
PATIENCE = 60

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--prometheus", required=True, type=pathlib.Path)
parser.add_argument("--bin", required=True, type=pathlib.Path)
parser.add_argument("--jobs", type=int, default=0)
options = parser.parse_args()
PARTAGE = options.bin / "partage"


def wait(what, found):
    until = time.monotonic() + PATIENCE
    while True:
        if answer := found():
            return answer
        assert time.monotonic() < until, f"{what}: not within {PATIENCE} s"
        time.sleep(0.1)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def said(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE, **more)
    assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class Host:
    """A broker for all users of the simulated machine, that serves metrics; a job or more."""

    def __init__(self, work):
        self.port, self.processes = free_port(), []
        config = work / "partage.toml"
        config.write_text(f'schema = 1\n[metrics]\nlisten = "127.0.0.1:{self.port}"\nlabels = ["user", "name"]\n')
        config.chmod(0o600)
        self.environment = os.environ | {"PARTAGE_PID_NAMESPACE": "any"}
        words = [options.bin / "partaged", "--managed", "--config", config]
        words += ["--socket-dir", os.environ["PARTAGE_SOCKET_DIR"]]
        self.broker = self.start(words)
        wait("the broker serves", self.text)

    def start(self, words):
        process = subprocess.Popen(
            [str(word) for word in words], env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.processes.append(process)
        return process

    def text(self):
        return get(f"http://127.0.0.1:{self.port}/metrics")

    def close(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


def rules(_host, _work):
    tool = options.prometheus / "promtool"
    said([tool, "check", "rules", RULES / "alerts.yml"])
    said([tool, "test", "rules", "alerts_test.yml"], cwd=RULES)
    return "twelve rules, each tried at rest and firing"


def names(host, _work):
    for name, part in (("train", "30%"), ("serve", "20%")):
        host.start([PARTAGE, "run", "-q", "-m", "1GiB", "-c", part, "--name", name, "--", "sleep", "600"])
        wait("the job is scraped", lambda: f'name="{name}"' in host.text())
    said([options.prometheus / "promtool", "check", "metrics"], input=host.text())
    said([options.prometheus / "promtool", "check", "metrics"], input=said([PARTAGE, "metrics"]))
    return "promtool has nothing to say of any name"


def scrape_configs(target):
    """The page's lines for prometheus.yml, with this target and without a token."""
    block = re.search(r"```text\n(scrape_configs:\n.*?)```", PAGE.read_text(), re.S)[1]
    lines = [line for line in block.splitlines() if "authorization:" not in line]
    return "\n".join(lines).replace("127.0.0.1:9811", target) + "\n"


def scraped(host, work):
    port = free_port()
    config = work / "prometheus.yml"
    config.write_text(
        "global: { scrape_interval: 1s, evaluation_interval: 1s }\n"
        f"rule_files: [{RULES / 'alerts.yml'}]\n{scrape_configs(f'127.0.0.1:{host.port}')}")
    words = [options.prometheus / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={work / 'tsdb'}"]
    host.start([*words, f"--web.listen-address=127.0.0.1:{port}"])

    def ask(query):
        text = get(f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
        answer = json.loads(text) if text else {}
        return answer["data"]["result"] if answer.get("status") == "success" else None

    wait("Prometheus has scraped", lambda: [one["value"][1] for one in ask('up{job="partage"}') or []] == ["1"])
    series = wait("the job's limit", lambda: ask('partage_job_memory_limit_bytes{name="train"}'))
    assert series[0]["value"][1] == str(1 << 30), series
    # By this label the rules tell jobs apart.
    assert re.fullmatch(r"j\d+", series[0]["metric"]["job"]), series
    text = (RULES / "alerts.yml").read_text()
    questions = re.findall(r"expr: (?:>-\n((?: {10}.*\n)+)|(.+))", text)
    assert len(questions) == 12, questions
    for folded, plain in questions:
        question = " ".join((folded or plain).split())
        assert ask(question) is not None, f"no answer to {question}"
    for title, question in panels():
        assert ask(question) is not None, f"{title}: no answer to {question}"
    # No rule has two series on one side where it takes one: Prometheus says so in the rule's health.
    groups = json.loads(wait("the rules ran", lambda: get(f"http://127.0.0.1:{port}/api/v1/rules")))["data"]["groups"]
    bad = [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]
    assert not bad, bad
    return "scraped, and each question of rules and dashboard answered"


def panels():
    """Each question of the dashboard, with its panel, as Grafana would ask it. Each metric of it is one of ours."""
    dashboard = json.loads((ROOT / "packaging/grafana/partage.json").read_text())
    page = (ROOT / "docs/metrics.md").read_text()
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            question = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            for metric in re.findall(r"partage_\w+", question):
                assert f"`{metric}`" in page, f"{panel['title']}: no metric {metric}"
            found.append((panel["title"], question))
    assert len(found) > 20, found
    return found


def cost(host):
    """Processor time of the broker for a scrape with that many jobs."""
    for number in range(options.jobs):
        host.start([PARTAGE, "run", "-q", "--name", f"n{number}", "--", "sleep", "3600"])
    until = f"partage_jobs {options.jobs + 1}"
    wait("all jobs run", lambda: until in host.text())
    stat = pathlib.Path(f"/proc/{host.broker.pid}/stat")
    ticks = lambda: sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13]))
    began, scrapes, size = ticks(), 50, 0
    for _ in range(scrapes):
        # Older than an answer that is given again.
        time.sleep(0.55)
        size = len(host.text())
    spent = (ticks() - began) / os.sysconf("SC_CLK_TCK") / scrapes
    rest = ticks()
    time.sleep(scrapes * 0.55)
    idle = (ticks() - rest) / os.sysconf("SC_CLK_TCK") / scrapes
    took = f"{1000 * (spent - idle):.1f} ms of the broker's processor time"
    print(f"cost: {options.jobs} jobs: {size} bytes, {took} a scrape")


def main():
    if "PARTAGE_WATCH_INSIDE" not in os.environ:
        # Everything happens on one simulated machine, which goes with its last process.
        words = [PARTAGE, "sim", "--gpus", "2", "--memory", "16GiB", "--machine", f"watch{os.getpid()}", "--"]
        words += [sys.executable, *sys.argv]
        return subprocess.run([str(word) for word in words], env=os.environ | {"PARTAGE_WATCH_INSIDE": "1"}).returncode
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="watch") as folder:
        work = pathlib.Path(folder)
        host = Host(work)
        try:
            for check in (rules, names, scraped):
                try:
                    print(f"tried: {check.__name__}: {check(host, work)}", flush=True)
                    passed += 1
                except Exception:
                    traceback.print_exc(file=sys.stdout)
                    print(f"FAILED: {check.__name__}", flush=True)
                    failed += 1
            if options.jobs:
                cost(host)
        finally:
            host.close()
    print(f"checks: {passed} passed {failed} failed")
    return 1 if failed else 0


sys.exit(main())
