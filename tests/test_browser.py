"""A person in the Prefect UI: press Run in a real Chromium, watch the turn, read what it decided, follow its links.

Needs `chromium` and `chromedriver`: where they are absent the tests say that they did not run, and with CI=true they
fail. Screenshots go to FLYWHEEL_SCREENSHOTS, else to pytest's folder of the test.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running_ui import RUN_SECONDS, RunningUi, post
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
    TimeoutException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.prefect

# Read at import: the fixture `home` takes all FLYWHEEL_ variables away.
SCREENSHOTS = os.environ.get("FLYWHEEL_SCREENSHOTS")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1400,1100"
)
# The page draws itself anew while one looks at it.
REDRAWN = (StaleElementReferenceException, ElementClickInterceptedException, ElementNotInteractableException)
PAGE_SECONDS = 180
# In the toast that a new run raises, and in the list below it.
RUN_LINK = "//a[contains(@href, '/runs/flow-run/')]"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody at the screen: sees what is displayed, clicks it, types, and keeps pictures."""

    browser: webdriver.Chrome
    album: Path

    def see(self, xpath: str, seconds: float = PAGE_SECONDS) -> WebElement:
        """The first displayed element, as soon as there is one."""

        def displayed(browser: webdriver.Chrome) -> WebElement | None:
            return next((e for e in browser.find_elements(By.XPATH, xpath) if e.is_displayed()), None)

        found = WebDriverWait(self.browser, seconds, ignored_exceptions=REDRAWN).until(
            displayed, f"not seen within {seconds:.0f} s: {xpath} on {self.browser.current_url}"
        )
        assert found is not None
        return found

    def press(self, xpath: str) -> None:
        """Click it, again if the page was drawn anew in between."""

        def clicked(_: webdriver.Chrome) -> bool:
            self.see(xpath).click()
            return True

        WebDriverWait(self.browser, PAGE_SECONDS, ignored_exceptions=REDRAWN).until(clicked, f"not clickable: {xpath}")

    def keep(self, name: str) -> None:
        """A picture of what is on the screen."""
        self.album.mkdir(parents=True, exist_ok=True)
        assert self.browser.save_screenshot(str(self.album / f"{name}.png"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        message = "NOT RUN: no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def person(ui: RunningUi, browser: webdriver.Chrome, tmp_path: Path) -> Person:
    """At the start page, that is the address which `make ui` prints."""
    browser.get(ui.address)
    return Person(browser, Path(SCREENSHOTS) if SCREENSHOTS else tmp_path)


def menu(name: str) -> str:
    return f"//a[normalize-space()='{name}']"


def deployment(name: str) -> str:
    return f"//a[normalize-space()='{name}' and contains(@href, '/deployments/deployment/')]"


def tab(name: str) -> str:
    return f"//*[@role='tab' and starts-with(normalize-space(), '{name}')]"


def submit(person: Person) -> None:
    """Press Submit until the form is left: the click that closes the bubble of an error does not always count."""

    def left(browser: webdriver.Chrome) -> bool:
        browser.find_element(By.XPATH, "//button[normalize-space()='Submit']").click()
        WebDriverWait(browser, 15).until(lambda b: "/run?" not in b.current_url and not b.current_url.endswith("/run"))
        return True

    ignored = (*REDRAWN, TimeoutException)
    WebDriverWait(person.browser, PAGE_SECONDS, ignored_exceptions=ignored).until(left, "the form stays")


def open_deployment(person: Person, name: str) -> None:
    person.press(menu("Deployments"))
    person.press(deployment(name))
    person.press("//button[normalize-space()='Run']")


def quick_run(person: Person, ui: RunningUi, name: str) -> None:
    """Press Quick run until the server has the run (a menu that is drawn anew swallows the click), and see its link."""
    wanted = {"flow_runs": {"deployment_id": {"any_": [ui.deployments[name]["id"]]}}}
    while not post("/flow_runs/filter", wanted):
        person.press("//*[@role='menuitem' and contains(., 'Quick run')]")
        for _ in range(30):
            if post("/flow_runs/filter", wanted):
                break
            time.sleep(1)
        else:
            person.press("//button[normalize-space()='Run']")
    try:
        person.see(RUN_LINK, 60)
    except TimeoutException:
        person.browser.refresh()  # a page that missed the news asks again


def test_a_turn_at_the_press_of_a_button(person: Person, ui: RunningUi) -> None:
    person.press(menu("Deployments"))
    person.see(deployment("turn"))
    person.keep("1-deployments")
    open_deployment(person, "turn")
    person.keep("2-run-menu")
    quick_run(person, ui, "turn")
    person.press(RUN_LINK)
    person.see("//*[normalize-space()='Completed']", RUN_SECONDS)
    person.keep("3-turn-completed")
    read_the_decision(person)
    follow_the_links(person, ui)


def read_the_decision(person: Person) -> None:
    """From the turn to its subflow `report`, there to the artifacts, there to the words and the picture."""
    person.press(tab("Subflow Runs"))
    person.press(f"{RUN_LINK}[ancestor::*[.//a[normalize-space()='report']][1]]")
    person.press(tab("Artifacts"))
    person.keep("4-artifacts-of-report")
    person.press("//a[contains(@href, '/artifacts/')][contains(., 'report-rates')]")
    picture = person.see("//img[starts-with(@src, 'data:image/svg+xml')]")
    assert person.browser.execute_script("return arguments[0].naturalWidth", picture) > 100
    person.keep("5-pass-rates")
    person.browser.back()
    person.press("//a[contains(@href, '/artifacts/')][contains(., 'report-turn')]")
    person.see("//h1[contains(., 'PROMOTE')]")
    person.keep("6-decision")


def follow_the_links(person: Person, ui: RunningUi) -> None:
    """The report's link leads to the page, in the same browser."""
    link = person.see(f"//a[starts-with(@href, '{ui.pages}/reports/')]")
    person.browser.get(str(link.get_attribute("href")))
    person.see("//*[contains(., 'Pass rates')]")
    person.keep("7-report")


def test_a_form_refuses_a_wrong_value_and_takes_a_right_one(person: Person) -> None:
    open_deployment(person, "curate")
    person.press("//*[@role='menuitem' and contains(., 'Custom run')]")
    field = person.see("//*[contains(text(), 'true success')]/ancestor::*[.//input][1]//input")
    assert field.get_attribute("value") == "", "the form claims no value"
    field.send_keys("1.5")
    person.keep("8-form")
    person.press("//button[normalize-space()='Submit']")
    message: Any = person.browser.execute_script("return arguments[0].validationMessage", field)
    assert message or person.see("//*[contains(., 'less than or equal to 1') or contains(., 'maximum of 1')]")
    person.keep("9-refused")
    field.clear()
    field.send_keys("0.9")
    submit(person)
    person.press(RUN_LINK)
    person.see("//*[normalize-space()='Completed']", RUN_SECONDS)
    person.press(tab("Parameters"))
    person.see("//*[contains(., 'min_posterior')]")
    person.keep("10-parameters")
