# SPDX-License-Identifier: MIT OR Apache-2.0
"""How exposed the unit is, by systemd's own measure, which needs no running systemd."""

import subprocess
from pathlib import Path

UNIT = Path(__file__).with_name("bestbyd.service")


def exposed(unit, tmp_path, threshold="20"):
    """Whether systemd-analyze finds the text of a unit more exposed than threshold / 10."""
    path = tmp_path / "bestbyd.service"
    path.write_text(unit)
    command = ["systemd-analyze", "security", "--no-pager", "--offline=yes"]
    done = subprocess.run(
        [*command, f"--threshold={threshold}", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Overall exposure level" in done.stdout, done.stderr
    return done.returncode != 0


def test_exposure_is_at_most_2(tmp_path):
    assert not exposed(UNIT.read_text(), tmp_path)


def test_unit_without_its_filter_is_more_exposed(tmp_path):
    lines = UNIT.read_text().splitlines(keepends=True)
    without = [line for line in lines if not line.startswith("SystemCallFilter=")]
    assert len(without) < len(lines)
    assert exposed("".join(without), tmp_path)
