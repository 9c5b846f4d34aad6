"""torchtitan's logger, which every module that logs imports from here."""

from torchtitan.tools.logging import init_logger as init_logger
from torchtitan.tools.logging import logger as logger
