"""The console: a process of its own that shows a mesh in a browser, live.

It hears what `hmas top` hears and asks what `hmas why` asks. `state.py` keeps what was heard; each page of `pages/` is
a pure function of it; `patch.py` tells a browser what changed.

Invariants:
- It acts by an operator's pin and by starting `hmas whatif` (`rehearsals.py`), both with an admin token alone.
  [tests/console/test_console_server.py::test_acting_takes_the_admins_token]
  [tests/console/test_console_server.py::test_a_what_if_takes_the_admins_token]
- No room of the mesh is imported. [tests/house/test_imports.py::test_a_forbidden_import_is_refused]
- What is kept is bounded. [tests/console/test_console_pages.py::test_what_is_kept_has_an_end]
- A browser that does not read holds one view and one socket buffer, and is let go after `stream.UNREAD_S`.
  [tests/console/test_console_server.py::test_a_browser_that_reads_nothing_makes_no_more_frames_and_is_let_go]
"""
