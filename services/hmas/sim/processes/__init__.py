"""The processes of a mesh in virtual time: the event heap that moves them, their shells, engines and streams."""
