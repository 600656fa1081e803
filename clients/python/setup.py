"""What pyproject.toml cannot say to every setuptools from 61 on: that a build takes nothing from an earlier one's folder, whose
modules may have gone since; the licence by its SPDX name; and of what machines a wheel is that has the daemon in it (deploy/build
--wheel puts it there): of no Python's own."""
import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

COMMANDS = {}


class FreshBuild(build_py):
    def run(self):
        if not getattr(self, "editable_mode", False):
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


COMMANDS["build_py"] = FreshBuild

if os.path.exists("src/arrayd/_program/arrayd"):
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:  # before setuptools 70.1
        from wheel.bdist_wheel import bdist_wheel

    class WithDaemon(bdist_wheel):
        def finalize_options(self):
            self.distribution.has_ext_modules = lambda: True  # it is of a kind of machine
            super().finalize_options()

        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    COMMANDS["bdist_wheel"] = WithDaemon

setup(cmdclass=COMMANDS, license="Apache-2.0")
