"""The page: complete in one file, readable without figures and at any width."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mixit_titan.reproduction.markdown import budget_text
from mixit_titan.reproduction.page import html_page

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Checks that tags are closed in order; notes figures, addresses and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.captions = 0
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.addresses += [found[key] or "" for key in ("src", "href", "srcset") if key in found]
        self.ids += [found["id"] or ""] if "id" in found else []
        if tag == "img":
            assert "figure" in self.open
            self.pictures.append(found)
        if tag == "figcaption":
            assert self.open[-1] == "figure"
            self.captions += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


@pytest.fixture(scope="module")
def page(reproduced: Path) -> Page:
    return Page((reproduced / "report.html").read_text())


def test_figures_are_inside_and_described(page: Page) -> None:
    assert len(page.pictures) == page.captions == 4  # three exhibits, and all claims
    for picture in page.pictures:
        assert picture["src"].startswith("data:image/png;base64,")
        assert len(picture["alt"]) > 40


def test_nothing_is_loaded_or_run(page: Page, reproduced: Path) -> None:
    assert "script" not in page.tags and "iframe" not in page.tags
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    text = (reproduced / "report.html").read_text()
    assert not re.search(r"https?://|@import|url\(", text)


def test_links_lead_somewhere(page: Page) -> None:
    assert {a[1:] for a in page.addresses if a.startswith("#")} == set(page.ids)
    assert page.ids == ["figure3", "table5", "table6"]


def test_all_of_the_report_is_on_the_page(page: Page, reproduced: Path) -> None:
    found = json.loads((reproduced / "report.json").read_text())
    for key in ("differences", "inconsistencies"):
        assert found[key] and all(text in page.text for text in found[key].values())
    for claim in found["claims"]:
        assert claim["says"] in page.text and claim["ours"] in page.text
    for entry in found["exhibits"]:
        for key in ("title", "setting", "command"):
            assert entry[key] in page.text
        for said in entry["budgets"].values():
            assert all(budget_text(each) in page.text for each in said.values())
        for row in entry["rows"]:
            for cell in row["cells"]:
                assert all(text in page.text for text in cell["text"].values())


def test_text_is_never_markup(reproduced: Path) -> None:
    """A name or a path may hold anything."""
    found = json.loads((reproduced / "report.json").read_text())
    evil = "<script>alert('&')</script>"
    for entry in found["exhibits"]:
        entry |= {"title": evil, "setting": evil, "notes": [evil], "columns": [evil]}
        entry |= {"alt": f'"{evil}', "caption": evil, "row": evil, "command": evil}
        entry |= {"budgets": {evil: {}}, "unequal_budgets": [evil]}
        for claim in entry["claims"]:
            claim |= {"says": evil, "paper": evil, "ours": evil, "needs": [evil], "unmet": [evil]}
        for row in entry["rows"]:
            text = {"ours": evil, "interval": evil, "paper": evil}
            row |= {"name": evil, "cells": [{"text": text}]}
    found["differences"] = found["inconsistencies"] = {evil: evil}
    page = Page(html_page(found, evil, reproduced))
    assert "script" not in page.tags and evil in page.text


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

FRAME = """<!DOCTYPE html><body style="margin: 0">
<iframe src="report.html" style="border: 0; width: {width}px; height: 3000px"></iframe>
<script>
window.onload = () => {{
  const frame = document.querySelector("iframe").contentWindow;
  const root = frame.document.documentElement;
  const broken = [...frame.document.images].filter(picture => !picture.naturalWidth).length;
  document.body.append(`FOUND ${{frame.innerWidth}} ${{root.scrollWidth}} ${{broken}} END`);
}};
</script>"""


@pytest.mark.skipif(not BROWSER, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_overflows_in_a_browser(reproduced: Path, tmp_path: Path, width: int) -> None:
    """In a frame of that width, as a browser's own window has a least one."""
    shutil.copy(reproduced / "report.html", tmp_path)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    flags += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += [f"--window-size={max(width, 600)},3000", "--hide-scrollbars"]

    def browse(*more: str) -> subprocess.CompletedProcess:
        command = [BROWSER, *flags, *more, frame.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)

    seen = browse("--dump-dom")
    measured = re.search(r"FOUND (\d+) (\d+) (\d+) END", seen.stdout)
    assert measured, seen.stderr
    inner, scroll, broken = map(int, measured.groups())
    assert inner == width and scroll <= inner and broken == 0
    assert "CONSOLE" not in seen.stderr
    picture = tmp_path / "page.png"
    browse(f"--screenshot={picture}")
    assert picture.read_bytes()[1:4] == b"PNG" and picture.stat().st_size > 20_000
