"""How Sphinx builds these pages: MyST sources, the Pallets theme, and drawings made from the code."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

project = "Flask-Idempotency"
author = "The Flask-Idempotency authors"
copyright = author
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]
version = release

extensions = ["drawings", "myst_parser", "pallets_sphinx_themes", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_ref_domains = ["std"]  # [claim](#claim) is the concept, not a method of that name

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 88
viewcode_line_numbers = True
viewcode_follow_imported_members = False  # it would link back to names that are not on any page

html_theme = "flask"
html_title = f"{project} {release}"
html_short_title = project
html_logo = "_static/mark.svg"
html_favicon = "_static/mark.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"**": ["rooms.html", "here.html", "searchbox.html"]}
templates_path = ["_templates"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = True
version_banner = False  # it would ask a server on the net
