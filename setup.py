"""Everything but this is in pyproject.toml. It gives an editable install the data files of a
wheel."""

from setuptools import Distribution, setup


class WithData(Distribution):
    """A distribution that says it has data files."""

    def has_data(self) -> bool:
        """What setuptools asks before it installs data files beside an editable package."""
        return self.has_data_files()


setup(distclass=WithData)
