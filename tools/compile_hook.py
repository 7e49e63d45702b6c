"""Compiles some modules of a wheel with mypyc, if OTTLA_COMPILE=1 is set: a hook of the build, docs/decisions/0014.

The compiled modules lie beside their sources in the wheel, and Python prefers them. They are built in a temporary
directory: a checkout, and an editable install of it, have none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):  # type: ignore[misc] # hatchling is only there during a build
    _place: str | None = None

    def dependencies(self) -> list[str]:
        return list(self.config["requires"]) if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not is_wanted():
            return
        if version == "editable":
            raise RuntimeError("an editable install is not compiled: unset OTTLA_COMPILE, or build a wheel")
        self._place = tempfile.mkdtemp(prefix="ottla-compiled-")
        root, place = Path(self.root) / "src", Path(self._place)
        library = compile_modules(root, self.config["modules"], self.config["library"], place)
        build_data["force_include"].update({str(path): str(path.relative_to(library)) for path in library.rglob("*.*")})
        build_data["infer_tag"], build_data["pure_python"] = True, False

    def finalize(self, *_: object) -> None:
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)


def is_wanted() -> bool:
    return os.environ.get("OTTLA_COMPILE", "") not in ("", "0")


def compile_modules(root: Path, modules: list[str], library_name: str, place: Path) -> Path:
    """Compiles modules below that root, together; returns the directory with the packages that contain them."""
    from mypyc.build import mypycify
    from setuptools import Distribution  # before mypyc, which looks whether it is there

    library = place / "library"
    options = ["--config-file=", f"--cache-dir={os.devnull}", "--follow-imports=silent", "--ignore-missing-imports"]
    paths = [module.replace(".", "/") + ".py" for module in modules]
    with contextlib.chdir(root):  # tracebacks name the sources from here
        extensions = mypycify([*options, *paths], target_dir=str(place / "sources"), group_name=library_name)
        command = Distribution({"name": "ottla", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(library), str(place / "objects")
        command.ensure_finalized()
        command.run()
    return library
