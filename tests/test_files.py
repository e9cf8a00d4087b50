"""Files that are written whole or not at all."""

import os

import pytest

from downside._files import check_writable, write_text


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    link = tmp_path / "page.html"
    link.symlink_to("/dev/null")
    for place in (link, "/dev/stdout", "/dev/page.html"):
        for write in (check_writable, lambda path: write_text(path, "text")):
            with pytest.raises(OSError, match=r"could not be written: it is a device\. Name a"):
                write(place)
    assert link.is_symlink()
    assert not os.path.exists("/dev/page.html")
