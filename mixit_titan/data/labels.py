"""The label where nothing is asked, which torchtitan's loss leaves out. Everything that writes or
reads labels takes it from here."""

from torchtitan.components.loss import IGNORE_INDEX as IGNORE_INDEX
