#!/usr/bin/env python3
"""docs/site/links.py finds each kind of link that leads nowhere: a check that cannot fail checks nothing."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/site"))
import links


class Links(unittest.TestCase):
    def test_that_lead_nowhere_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder)
            (site / "a.html").write_text('<h1 id="here">a</h1><a href="b/index.html#there"></a><a href="b"></a><a href="#here"></a>'
                                         '<a href="https://example.org/x"></a><a href="no.html"></a><a href="#no"></a>'
                                         '<a href="b/index.html#no"></a><script src="https://example.org/x.js"></script><img src="no.png">')
            (site / "b").mkdir()
            (site / "b/index.html").write_text('<p id="there"></p><a href="../a.html#here"></a>')
            found, count, pages = links.wrong(site)
        self.assertEqual(found, ["a.html: no.html: there is no such file", "a.html: #no: the page has no such anchor",
                                 "a.html: b/index.html#no: the page has no such anchor", "a.html: loads https://example.org/x.js",
                                 "a.html: no.png: there is no such file"])
        self.assertEqual((count, pages), (8, 2))


if __name__ == "__main__":
    unittest.main()
