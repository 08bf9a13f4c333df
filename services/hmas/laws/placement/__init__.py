"""Which instances a budget of cards should run, and how many of each: the search for plans.

The pace law keeps few candidates of each pool and number of cards (`candidates`), a simulation that the caller brings
values them, and the cards are divided over pools and kinds of hardware exactly (`division`, `plan_search`). How much
more is possible at most is told by a fluid bound (`fluid_bound`).
"""
