# SPDX-License-Identifier: Apache-2.0
"""What of others is in the packages: the texts of their licences, and a bill of materials (CycloneDX 1.6, JSON).

usage: third_party.py [--target TRIPLE] notices | sbom      (to standard output)

Both are made from Cargo.lock by way of `cargo metadata`: the crates that are linked into what is packed, without
those that only build or test it. The same lock file gives the same bytes.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import uuid

# What is packed; crates that only some of the packages have count too.
PACKED = {
    "partage-broker",
    "partage-cli",
    "partage-demo-client",
    "partage-interposer",
    "partage-sim",
    "partage-sim-nvml",
    "partage-sim-nvrtc",
    "partage-sim-runtime",
    "partage-sim-blas",
}
LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT")
ROOT = pathlib.Path(__file__).resolve().parent.parent


def metadata(target: str) -> dict:
    """The resolved crates of the workspace for a target, as cargo tells them."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)


def linked(data: dict) -> list[dict]:
    """The crates that are linked into what is packed, by name and version; ours have no source."""
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    left = [key for key, package in packages.items() if package["name"] in PACKED]
    seen = set()
    while left:
        key = left.pop()
        if key in seen:
            continue
        seen.add(key)
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                left.append(dependency["pkg"])
    found = (packages[key] for key in seen)
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def expression(package: dict) -> str:
    """The licence as an SPDX expression; old crates write `MIT/Apache-2.0`."""
    return " OR ".join(part.strip() for part in (package["license"] or "").split("/"))


def texts(package: dict) -> list[tuple[str, str]]:
    """Name and text of each licence file that a crate ships."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name.upper().startswith(LICENCE_FILES)
    ]
    if not files:
        sys.exit(f"{package['name']} {package['version']} ships no text of its licence ({package['license']})")
    return [(path.name, path.read_text(encoding="utf-8", errors="replace").strip()) for path in files]


def notices(packages: list[dict]) -> str:
    """One page: each crate with its licence, then each text once, with the crates that it is of."""
    lines = ["Partage contains the crates below, under the licences that they name.", ""]
    by_text: dict[str, list[str]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {expression(package)}")
        for file, text in texts(package):
            by_text.setdefault(text, []).append(f"{name} ({file})")
    for text, names in sorted(by_text.items(), key=lambda pair: pair[1]):
        lines += ["", "-" * 80, ", ".join(names), "", text]
    return "\n".join(lines) + "\n"


def checksums() -> dict[tuple[str, str], str]:
    """SHA-256 of each crate's archive, from the lock file."""
    import tomllib

    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    return {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}


def sbom(packages: list[dict], target: str) -> str:
    """The bill of materials: ours is the component, others' crates are what it is made of."""
    sums = checksums()
    own = next(package for package in packages if package["name"] == "partage-cli")
    components = []
    for package in packages:
        if package["source"] is None:
            continue
        name, version = package["name"], package["version"]
        reference = f"pkg:cargo/{name}@{version}"
        component = {
            "type": "library",
            "bom-ref": reference,
            "name": name,
            "version": version,
            "licenses": [{"expression": expression(package)}],
            "purl": reference,
        }
        if (name, version) in sums:
            component["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
        components.append(component)
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "partage",
                "name": "partage",
                "version": own["version"],
                "licenses": [{"expression": expression(own)}],
                "properties": [{"name": "target", "value": target}],
            }
        },
        "components": components,
        "dependencies": [{"ref": "partage", "dependsOn": [one["bom-ref"] for one in components]}],
    }
    # The same contents have the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{number}", **body}, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Prints one of the two."""
    parser = argparse.ArgumentParser(description="What of others is in the packages.")
    parser.add_argument("--target", default="x86_64-unknown-linux-gnu")
    parser.add_argument("what", choices=["notices", "sbom"])
    arguments = parser.parse_args()
    packages = linked(metadata(arguments.target))
    if arguments.what == "notices":
        others = [package for package in packages if package["source"] is not None]
        sys.stdout.write(notices(others))
    else:
        sys.stdout.write(sbom(packages, arguments.target))


if __name__ == "__main__":
    main()
