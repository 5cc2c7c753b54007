"""The language that a person writes in, guessed by its commonest words.

Six languages are told apart, those that the fixed texts exist in. The detectors on PyPI that are kept well bring
numpy or models of tens of megabytes, for a question that is asked once a message and only matters for a few sentences.
"""

import re
from collections.abc import Sequence
from typing import Final

_MOST_READ: Final = 4_000
_LEAST: Final = 1.0
_MARGIN: Final = 0.5
"""What the best language must have, and by how much it must be ahead, in words that only it has."""

_SET_ASIDE: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\S+@\S+|\w+://\S+|\"[^\"\n]*\"|“[^”\n]*”|„[^“\n]*“|«[^»\n]*»|^>.*$",
    re.DOTALL | re.MULTILINE,
)
"""Code, addresses and quotes are not the writer's own words."""

_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")

_LISTS: Final = {
    "en": """the an is are was were been be what how much many more do does did you he she it we they my your me us
        and but if of to on at by as so up for from with about this that these those can could will would should
        please when where who why which have has had not any some there here give tell show find make write send add
        list hello hi thanks thank today go i'm it's don't let need want get out all into than then just like see
        read look check book email table weather yes use new most explain translate summarize summarise in a i or am
        no""",
    "pt": """o os as é são foi está estou ser ter tem que quem quanto quantos quanta quantas como eu você vocês ele
        ela nós meu minha meus minhas ou mas se de do da dos das em no na nos nas ao à para por pelo pela este esta
        esse essa isso isto pode posso com sem sobre qual quais onde quando não sim um uma seu sua mais muito já horas
        hoje ontem amanhã favor obrigado obrigada olá oi bom boa dia mês ano me quero faça mostre diga liste envie
        também então a e envia mande manda ver todos todas preciso gostaria tempo mesa reserve reserva marque
        veja aos às pra tá né até depois aqui agora mostra mostrar procura procure responde
        podes ajudar ajuda diz diz-me cria crie traduz traduza faturas compras conta
        pedido pedidos resumo ao quais tenho estás faz fazer enviar obter saber estou""",
    "es": """dos uno tres el la los las es son fue
        está estoy ser tener tiene que qué quién quien cuánto cuántos cuánta cuántas
        cuanto cómo como yo tú usted ustedes él ella nosotros mi mis y o pero si de del en al para por este esta ese
        esa eso esto puede puedo con sin sobre cuál cuáles cual dónde cuándo cuando no sí un una su sus más muy ya
        horas hoy ayer mañana gracias hola favor buenos buenas día mes año me quiero haz muestra muéstrame dime lista
        envía también entonces a lo le les hay manda mande necesito quisiera gustaría tiempo mesa reserva aquí ahora
        sigue continúa dame todo todos después hasta puedes ayudarme ayuda cuenta pedido pedidos
        resumen crea busca responde traduce muestra tengo hacer enviar saber estoy correo""",
    "de": """der die das ein eine einen einem einer und oder aber ist sind war waren sein haben hat habe ich du er sie
        es wir ihr mein meine meinen dein deine bitte wie viel viele was wer wo wann warum welche welcher welches kann
        kannst könnte können soll sollte wird werden nicht kein keine mit ohne für von vom zu zum zur im am auf aus
        bei nach über unter den dem des heute gestern morgen danke hallo guten tag mir mich dir uns schicke sende
        schreibe zeige gib nenne suche finde mach an in so auch noch schon dann wenn dass ja nein weiter uhr kostet
        wetter reserviere buche diese dieser dieses alle""",
    "fr": """le la les un une des du de et ou mais est sont était être avoir ai as a je tu il elle nous vous ils mon
        ma mes ton ta tes son sa ses ce cette ces que qui quoi quel quelle quels quelles où quand comment combien
        pourquoi peux peut pouvez pourriez avec sans pour par sur dans en au aux ne pas plus très déjà
        aujourd hui hier demain merci bonjour salut oui non moi toi lui leur envoie envoyez montre montrez donne
        donnez dis écris trouve cherche fais faites réserve réservez s'il plaît voudrais veux il y encore aussi alors
        tout tous heure temps continuez à résume résumez traduis traduisez ai avons
        client clients facture factures""",
    "it": """il lo la i gli le un uno una di del della dei delle e ed o ma è sono era essere avere ho hai ha io tu lui
        lei noi voi loro mio mia miei mie tuo tua questo questa questi queste quello quella che chi cosa come quanto
        quanti quanta quante quale quali dove quando perché può puoi posso potresti con senza per su in nel nella al
        alla da dal dalla non più molto già oggi ieri domani grazie ciao buongiorno sì no mi ti ci vi manda invia
        mostra dammi dimmi scrivi trova cerca fai prenota per favore vorrei voglio anche allora tutto tutti ora ore
        tempo tavolo ad un'altra riassumi traduci abbiamo fattura fatture clienti mandami inviami rapporto""",
}
_LETTERS: Final = {
    "pt": ("ãõ", 1.5),
    "es": ("ñ¿¡", 1.5),
    "de": ("ßäöü", 1.0),
    "fr": ("êëîïûùœ", 0.7),
    "it": ("ìò", 0.7),
}
"""Letters that speak for a language, and how much the first of them does."""


def _weights() -> dict[str, dict[str, float]]:
    sets = {tag: frozenset(words.split()) for tag, words in _LISTS.items()}
    return {
        tag: {word: 1.0 / sum(word in other for other in sets.values()) ** 1.5 for word in words}
        for tag, words in sets.items()
    }


_WEIGHTS: Final = _weights()


def guess_language(text: str, before: Sequence[str] = ()) -> str:
    """Return the tag of the language of ``text``, among ``en``, ``pt``, ``es``, ``de``, ``fr`` and ``it``.

    What is too short to tell (``ok``, a number) is taken for the language of the newest of the texts ``before`` it
    that tells, oldest first; with none, for English.
    """
    told = (_told(one) for one in (text, *reversed(before)))
    return next((tag for tag in told if tag), "en")


def _told(text: str) -> str:
    """Return the language that a text tells, '' if it tells none by a margin."""
    own = _SET_ASIDE.sub(" ", text[:_MOST_READ]).lower().replace("\u2019", "'")
    words = _WORD.findall(own)
    scores = {tag: sum(map(known.get, words, (0.0,) * len(words))) for tag, known in _WEIGHTS.items()}
    for tag, (letters, weight) in _LETTERS.items():
        scores[tag] += weight * bool(set(letters) & set(own))
    best, second = sorted(scores, key=lambda tag: scores[tag], reverse=True)[:2]
    enough = scores[best] >= min(_LEAST, 0.5 * max(len(words), 1))
    return best if enough and scores[best] - scores[second] >= min(_MARGIN, 0.15 * scores[best] + 0.05) else ""
