"""Build of the decoder: a shared library without Python's headers, one wheel for every Python."""

from __future__ import annotations

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fwrapv",
    "-Wall",
    "-Wextra",
]
VECTORS = ["-mavx2", "-mbmi2"] if platform.machine() == "x86_64" else []
SOURCES = sorted(str(path) for path in Path("src").glob("*.c"))
PORTABLE = "src/batch.c"


class BuildLibrary(build_ext):
    """Compiles batch.c for any processor, as it asks whether this one can run the rest."""

    def build_extension(self, ext: Extension) -> None:
        where = {"output_dir": self.build_temp, "depends": ext.depends}
        rest = [source for source in ext.sources if source != PORTABLE]
        objects = self.compiler.compile([PORTABLE], extra_postargs=FLAGS, **where)
        objects += self.compiler.compile(rest, extra_postargs=[*FLAGS, *VECTORS], **where)
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            libraries=["m", "pthread"],
            extra_postargs=["-s"],
        )

    def get_ext_filename(self, name: str) -> str:
        return str(Path(*name.split("."))) + ".so"


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("infeed_jpeg._decoder", SOURCES, depends=["src/decoder.h"])],
    options={"build": {"build_base": "../build/native"}},  # of the repository, not of the code
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": AnyPython},
)
