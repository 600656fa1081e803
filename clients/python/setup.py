"""What pyproject.toml cannot say to every setuptools from 61 on: that a build takes nothing from an earlier one's folder, whose
modules may have gone since; and the licence by its SPDX name."""
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    def run(self):
        if not getattr(self, "editable_mode", False):
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FreshBuild}, license="Apache-2.0")
