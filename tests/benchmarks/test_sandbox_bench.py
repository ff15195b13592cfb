"""Every attack on the sandbox, one by one; skipped where bubblewrap does not work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.attacks import ATTACKS, Attack, Host, fault, host, launch
from harness import sandbox

pytestmark = pytest.mark.skipif(sandbox.refusal() is not None, reason=str(sandbox.refusal()))


@pytest.fixture(scope="module")
def place() -> Iterator[Host]:
    with host() as found:
        yield found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_sandbox_holds(attack: Attack, place: Host) -> None:
    assert fault(attack, launch(attack, place), place) is None


def test_an_attack_that_gets_through_is_told(place: Host) -> None:
    for program, told in (
        ("breach('this')", "BREACH this"),
        ("raise SystemExit(1)", "did not run to its end"),
        ("while True: pass", "ended by timeout"),
        (f"print({place.secret!r})", "the secret was read"),
    ):
        attack = Attack("made up", program)
        assert told in str(fault(attack, launch(attack, place), place))
