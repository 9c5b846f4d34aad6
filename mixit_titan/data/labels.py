"""The label of positions that torchtitan's loss ignores. Everything that writes or reads labels
imports it from here."""

from torchtitan.components.loss import IGNORE_INDEX as IGNORE_INDEX
