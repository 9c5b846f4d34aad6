"""All but this is in pyproject.toml: an editable install, too, has the data files of a wheel."""

from setuptools import Distribution, setup


class WithData(Distribution):
    def has_data(self) -> bool:
        """What setuptools asks before it installs data files beside an editable package."""
        return self.has_data_files()


setup(distclass=WithData)
