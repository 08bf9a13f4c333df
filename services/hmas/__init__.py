"""The services of the H-MAS mesh, one package a room."""
