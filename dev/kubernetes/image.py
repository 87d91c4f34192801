#!/usr/bin/env python3
"""image.py OUT NAME:TAG FOLDER [--user U] [--env K=V]… [--entry PROGRAM ARGUMENT…]

Writes a folder as a container image of one layer, in the archive form that `ctr image import` reads.
"""

import argparse
import hashlib
import io
import json
import os
import pathlib
import platform
import tarfile


def layer(root: pathlib.Path) -> bytes:
    """The folder as a tar archive that is the same for the same content."""

    def settle(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uname, entry.gname = 0, "", ""
        return entry

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(os.listdir(root)):
            archive.add(root / name, arcname=name, filter=settle)
    return out.getvalue()


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("out", type=pathlib.Path)
    given.add_argument("name")
    given.add_argument("root", type=pathlib.Path)
    given.add_argument("--user", default="")
    given.add_argument("--env", action="append", default=[])
    given.add_argument("--entry", nargs=argparse.REMAINDER, default=[])
    given = given.parse_args()

    content = layer(given.root)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = json.dumps({
        "architecture": architecture,
        "os": "linux",
        "config": {"User": given.user, "Env": given.env or ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": given.entry},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]},
    }, sort_keys=True).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [given.name], "Layers": ["layer.tar"]}]).encode()

    draft = given.out.with_suffix(".new")
    with tarfile.open(draft, "w") as archive:
        for name, data in ((config_name, config), ("manifest.json", manifest), ("layer.tar", content)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    draft.replace(given.out)


main()
