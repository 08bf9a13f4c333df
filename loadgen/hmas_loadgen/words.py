"""256 common English words of three letters for synthetic prompts. A word and the space after it are four bytes, which
the mesh's estimate counts as one token; most production tokenizers count one token as well."""

_TEXT = """
the and for are but not you all any can had her was one our out day get has him his how man new now old see two
way who boy did its let put say she too use dad mom act add age ago aid aim air arm art ask bad bag ban bar bat
bed bee bet big bit bow box bus buy cab cap car cat cop cow cry cup cut den die dig dog dot dry due ear eat egg
ego end era eve eye fan far fat fee few fig fit fix fly fog fox fun fur gap gas gel gem god gum gun gut guy gym
hat hen hit hop hot hub hug hut ice ill ink inn ion jam jar jaw jet job jog joy key kid kit lab lag lap law lay
led leg lid lie lip log lot low mad map mat may men met mix mob mod mud net nod nor nut oak odd off oil own pad
pan pat pay pea pen per pet pie pig pin pit pop pot pro pub pup ran rap rat raw ray red rib rid rim rip rob rod
row rub rug run sad sat saw sea set sew shy sin sip sit six ski sky son spy sum sun tab tag tan tap tax tea ten
tie tin tip toe ton top toy try tub van vet via war wax web wet why win wit yes yet zip zoo pod ash awe bay bib
bid bud cue dew
"""
WORDS: tuple[str, ...] = tuple(_TEXT.split())
