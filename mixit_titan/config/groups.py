"""[[optimizer.groups]] of a run: the weights in each group, and what is trained when."""

from dataclasses import fields

from mixit_titan.config.sections import GroupSection, Sections
from mixit_titan.errors import ConfigError, shown
from mixit_titan.model.freezing import pattern_of
from mixit_titan.model.phases import Phase, Spell, check_apart, phases, read_parts
from mixit_titan.model.shapes import Shape
from mixit_titan.model.stack import Stack
from mixit_titan.runtime.optimizer import Group


def read_groups(sections: Sections, shape: Shape, stack: Stack) -> tuple[list[Group], list[Phase]]:
    """The groups and phases of a run. Raises a ConfigError for a group that matches nothing in the
    model, or that would take effect after the last step."""
    given = sections.optimizer.groups
    chosen = [read_parts(group.parts, shape, stack) for group in given]
    check_apart(chosen)
    for group in given:
        _check_steps(group, sections.lr_scheduler.total_steps or sections.training.steps)
    groups = [
        Group(pattern_of(weights), group.lr_factor, group.weight_decay, said=_said(group))
        for group, weights in zip(given, chosen, strict=True)
    ]
    spells = [
        Spell(group.parts, weights, until=group.freeze_until or 0, after=group.freeze_after)
        for group, weights in zip(given, chosen, strict=True)
        if group.freeze_until is not None or group.freeze_after is not None
    ]
    return groups, phases(shape, stack, spells)


def _said(group: GroupSection) -> str:
    """What the file says about a group: `parts = 'qk', lr_factor = 0.1`."""
    own = {f.name: getattr(group, f.name) for f in fields(group)}
    plain = {f.name: f.default for f in fields(group)}
    return ", ".join(f"{key} = {value!r}" for key, value in own.items() if value != plain[key])


def _check_steps(group: GroupSection, last: int) -> None:
    late = {"freeze_until": "thaw", "freeze_after": "freeze"}
    for key, verb in late.items():
        step = getattr(group, key)
        if step is not None and step >= last:
            raise ConfigError(
                f"optimizer.groups: parts = {shown(group.parts)} would never {verb}, because "
                f"{key} = {step} and the last step is {last}: lower it, or raise training.steps"
            )
