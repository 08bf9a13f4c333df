"""Orders of operating systems and networks that no default and no experiment of H-MAS uses, one function each."""
