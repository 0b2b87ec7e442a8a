"""``docs/settings.md`` lists every setting that changes while the cluster runs."""

from tests.support import settings_page


def test_the_page_of_settings_is_up_to_date():
    assert settings_page.PAGE.read_text() == settings_page.page(), settings_page.REGENERATE
