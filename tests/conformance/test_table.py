"""The table of client by check: written, read back, and honest about what did not run."""

from __future__ import annotations

from tests.conformance.table import read_table, write_table

OUTCOMES = {
    ("commits and resumes", "kcat"): "yes",
    ("commits and resumes", "kafkajs"): "not run: npm is not installed",
    ("resets offsets", "kafkajs"): "not run: npm is not installed",
    ("members form one group: shoal: range", "Java, kcat"): "yes",
    ("members form one group: shoal: sticky", "Java, kcat"): "not run: java is not installed",
}


def test_a_client_that_cannot_be_had_is_reported_with_its_reason(tmp_path):
    page = tmp_path / "conformance.md"
    write_table(page, OUTCOMES)
    text = page.read_text()
    assert "| commits and resumes | not run (1) | yes |" in text
    assert "| resets offsets | not run (1) | - |" in text
    assert "| Java, kcat | yes | not run (2) |" in text
    assert "| members | shoal: range | shoal: sticky |" in text
    assert text.endswith("\n- (1) npm is not installed\n- (2) java is not installed\n")


def test_a_part_of_the_checks_updates_only_its_own_cells(tmp_path):
    page = tmp_path / "conformance.md"
    write_table(page, OUTCOMES)
    write_table(page, {("resets offsets", "kafkajs"): "FAILED"})
    assert read_table(page) == OUTCOMES | {("resets offsets", "kafkajs"): "FAILED"}
