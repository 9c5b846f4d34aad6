"""All tables and figures of the paper, then one of ours, in the order of the report."""

from mixit_titan.errors import unknown
from mixit_titan.reproduction.depth import TABLE_6_EXHIBIT
from mixit_titan.reproduction.exhibit import Exhibit
from mixit_titan.reproduction.full_table4 import FULL_TABLE_4_EXHIBIT
from mixit_titan.reproduction.induction import FIGURE_2_EXHIBIT, FIGURE_3_EXHIBIT, TABLE_1_EXHIBIT
from mixit_titan.reproduction.language import TABLE_2_EXHIBIT, TABLE_7_EXHIBIT
from mixit_titan.reproduction.skills import (
    TABLE_3_EXHIBIT,
    TABLE_4_EXHIBIT,
    TABLE_5_EXHIBIT,
)
from mixit_titan.reproduction.speed import THROUGHPUT_EXHIBIT
from mixit_titan.reproduction.stacks import STACKS_EXHIBIT

EXHIBITS: dict[str, Exhibit] = {
    exhibit.id: exhibit
    for exhibit in (
        TABLE_1_EXHIBIT,
        FIGURE_2_EXHIBIT,
        FIGURE_3_EXHIBIT,
        TABLE_2_EXHIBIT,
        TABLE_3_EXHIBIT,
        TABLE_4_EXHIBIT,
        FULL_TABLE_4_EXHIBIT,
        TABLE_5_EXHIBIT,
        TABLE_6_EXHIBIT,
        TABLE_7_EXHIBIT,
        THROUGHPUT_EXHIBIT,
        STACKS_EXHIBIT,
    )
}


def find_exhibits(names: list[str]) -> list[Exhibit]:
    """The named exhibits, or all that run by default; a ConfigError for an unknown name."""
    for name in names:
        if name not in EXHIBITS:
            raise unknown("exhibit in --only", name, EXHIBITS)
    return [
        exhibit
        for exhibit in EXHIBITS.values()
        if (exhibit.id in names if names else exhibit.by_default)
    ]
