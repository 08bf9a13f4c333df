"""What an operator's commands and the console share: how they hear a mesh, ask it and pin its topology.

It knows neither the command line nor the browser, and no room.
"""
