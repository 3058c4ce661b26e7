"""Tests of the printed HTML report: two pages at most."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser

from sawtooth.app.reports.html import run_html
from tests.support.findings_of import result_of

PAGES = 2


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["gpt_small", "copy_pageable", "ddp_straggler"])
@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_a_report_prints_to_two_pages(browser: Browser, name: str, paper: str) -> None:
    page = browser.new_page()
    page.set_content(run_html(result_of(name)))
    printed = page.pdf(format=paper)
    page.close()
    assert 1 <= len(re.findall(rb"/Type\s*/Page[^s]", printed)) <= PAGES
