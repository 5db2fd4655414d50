"""The `[attacks.NAME]` tables: settings of an attack that `attack.name=` selects."""

from __future__ import annotations

from typing import Any

import pytest

import dragfl
from dragfl.errors import SpecError

TABLES: dict[str, Any] = {
    "clients": {"total": 10},
    "attack": {"name": "sign_flip", "scale": 9.0, "attackers": 3, "redraw": True},
    "attacks": {"sign_flip": {"scale": 2.0}},
}


def test_attack_name_reads_the_settings_of_its_table() -> None:
    """`attack.name=` applies `[attacks.NAME]` and keeps the number of attackers; `none` removes the attack."""
    assert dragfl.load(TABLES).attack == dragfl.attacks.SignFlip(scale=9.0)  # settings in [attack] win
    named = dragfl.load(TABLES, "attack.name=sign_flip")
    assert named.attack == dragfl.attacks.SignFlip(scale=2.0) and named.attackers.redraw
    assert dragfl.load(TABLES, "attack.scale=3.0", "attack.name=sign_flip").attack == dragfl.attacks.SignFlip(scale=3.0)
    assert dragfl.load(TABLES, "attack.name=random_scaling").attack == dragfl.attacks.RandomScaling()
    assert dragfl.load(TABLES, "attack.name=none", "attack.attackers=2").attack is None
    bare = {**TABLES, "attack": {"name": "sign_flip", "attackers": 1}}
    assert dragfl.load(bare).attack == dragfl.attacks.SignFlip(scale=2.0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sign_flop": {}}, "attacks.sign_flop: unknown attack 'sign_flop'; did you mean 'sign_flip'?"),
        ({"sign_flip": {"scael": 1.0}}, "attacks.sign_flip.scael: unknown key 'scael'; did you mean 'scale'?"),
        ({"sign_flip": {"scale": "x"}}, "attacks.sign_flip.scale: expected `float`, got `str`"),
        ({"sign_flip": {"attackers": 3}}, "attacks.sign_flip.attackers: unknown key"),
        ({"sign_flip": 3}, "attacks.sign_flip: expected a table, got 3"),
    ],
)  # fmt: skip
def test_mistakes_in_attack_tables(table: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load({**TABLES, "attacks": table})
    assert message in str(error.value)
