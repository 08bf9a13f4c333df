"""The console: a process of its own that shows a mesh in a browser, live.

- It hears what `hmas top` hears and asks what `hmas why` asks; it acts by an operator's pin alone, with an admin token.
  That token also starts `hmas whatif`, as a process of its own (`rehearsals.py`).
- `state.py` keeps what was heard, in bounds; each page of `pages/` is a pure function of it; `patch.py` tells a browser
  what changed. No room of the mesh is imported, and none waits for the console.
- A browser that does not read holds one view and one socket buffer, and is let go after `stream.UNREAD_S`.
"""
