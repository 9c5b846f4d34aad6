"""torchtitan's logger. Everything that logs takes it from here."""

from torchtitan.tools.logging import init_logger as init_logger
from torchtitan.tools.logging import logger as logger
