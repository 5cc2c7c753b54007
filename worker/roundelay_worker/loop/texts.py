"""The fixed texts: what the model is told at a limit, and what a person reads when no model can write it.

Texts for the model are in English, whatever the language of the conversation; texts for a person exist
in English, Portuguese and Spanish.
"""

import re
from typing import Final

from roundelay.names import SoftStop

NOT_EXECUTED: Final[dict[str, str]] = {
    "round_limit": "Not executed: the step limit for this answer was reached.",
    "token_limit": "Not executed: the token limit for this answer was reached.",
    "timed_out": "Not executed: the time limit for this answer was reached.",
    "no_progress": "Not executed: the repetition limit for this answer was reached.",
    "cancelled": "Not executed: cancelled by user.",
    "failed": "Not executed: the answer ended with an error before this step.",
}
"""The result of a call that never ran, by why."""

REPEAT_NOTE: Final = (
    "Note: the same calls with the same arguments have brought the same results several times in a row. "
    "Do something different, or answer with what you know."
)

CLOSING: Final[dict[SoftStop, str]] = {
    "round_limit": "The limit of steps for this answer has been reached.",
    "token_limit": "The limit of tokens for this answer has been reached.",
    "timed_out": "The time limit for this answer has been reached.",
    "no_progress": "The same steps were repeated without progress, so they were stopped.",
}

CLOSING_INSTRUCTION: Final = (
    "No more tools can be used now. Answer the user with what you know from the results so far. Say plainly that "
    "this limit was reached and what was left undone because of it, and ask whether to go on. "
    "Write in the language of the user's last message."
)

NUDGES: Final[dict[str, str]] = {
    "empty_reply": "Your last reply was empty. Please answer, or use a tool.",
    "malformed_reply": "Your last reply could not be read as a tool call. Use the tool interface, or answer in words.",
    "reply_cut": "Your last reply did not fit. Be more concise: shorter text, fewer or smaller tool calls.",
}


def closing_instruction(reason: SoftStop) -> str:
    """Return what the system prompt of a closing request says in addition."""
    return f"{CLOSING[reason]} {CLOSING_INSTRUCTION}"


_MOST_READ: Final = 4_000
"""Characters by which the language of a text is guessed."""

Phrases = dict[str, str]

PHRASES: Final[dict[str, Phrases]] = {
    "en": {
        "round_limit": "I stopped before finishing: the step limit for this answer was reached.",
        "token_limit": "I stopped before finishing: the token limit for this answer was reached.",
        "timed_out": "I stopped before finishing: the time limit for this answer was reached.",
        "no_progress": "I stopped before finishing: the same steps were repeated without progress.",
        "refused": "I cannot help with this request.",
        "cancelled": "This answer was cancelled.",
        "failed": "Something went wrong and I could not finish this answer.",
        "done": "What was done and found:",
        "undone": "What was not done:",
        "uncertain": "What may or may not have been done (please check):",
        "nothing": "Nothing was done yet.",
        "more": "… and {count} more.",
        "go_on": "Shall I go on?",
        "try_again": "Please try again.",
        "try_later": "Please try again in a while.",
        "try_after": "Please wait for the answer before this one, then send it again.",
        "shorten": "Please try a shorter message, or start a new conversation.",
        "report": "Trying again will not help until whoever runs this service has changed its settings.",
        "persists": "If trying again does not help, please tell whoever runs this service.",
    },
    "pt": {
        "round_limit": "Parei antes de terminar: o limite de passos desta resposta foi atingido.",
        "token_limit": "Parei antes de terminar: o limite de tokens desta resposta foi atingido.",
        "timed_out": "Parei antes de terminar: o limite de tempo desta resposta foi atingido.",
        "no_progress": "Parei antes de terminar: os mesmos passos se repetiram sem progresso.",
        "refused": "Não posso ajudar com este pedido.",
        "cancelled": "Esta resposta foi cancelada.",
        "failed": "Algo deu errado e não consegui terminar esta resposta.",
        "done": "O que foi feito e encontrado:",
        "undone": "O que não foi feito:",
        "uncertain": "O que pode ou não ter sido feito (verifique, por favor):",
        "nothing": "Nada foi feito ainda.",
        "more": "… e mais {count}.",
        "go_on": "Devo continuar?",
        "try_again": "Por favor, tente de novo.",
        "try_later": "Por favor, tente de novo daqui a algum tempo.",
        "try_after": "Por favor, espere pela resposta anterior e envie a mensagem de novo.",
        "shorten": "Por favor, tente uma mensagem mais curta ou comece uma nova conversa.",
        "report": "Tentar de novo não vai adiantar até que o responsável por este serviço mude a configuração.",
        "persists": "Se tentar de novo não adiantar, por favor avise o responsável por este serviço.",
    },
    "es": {
        "round_limit": "Me detuve antes de terminar: se alcanzó el límite de pasos de esta respuesta.",
        "token_limit": "Me detuve antes de terminar: se alcanzó el límite de tokens de esta respuesta.",
        "timed_out": "Me detuve antes de terminar: se alcanzó el límite de tiempo de esta respuesta.",
        "no_progress": "Me detuve antes de terminar: los mismos pasos se repitieron sin avanzar.",
        "refused": "No puedo ayudar con esta petición.",
        "cancelled": "Esta respuesta fue cancelada.",
        "failed": "Algo salió mal y no pude terminar esta respuesta.",
        "done": "Lo que se hizo y se encontró:",
        "undone": "Lo que no se hizo:",
        "uncertain": "Lo que pudo o no haberse hecho (por favor, compruébelo):",
        "nothing": "Todavía no se hizo nada.",
        "more": "… y {count} más.",
        "go_on": "¿Debo continuar?",
        "try_again": "Por favor, inténtelo de nuevo.",
        "try_later": "Por favor, inténtelo de nuevo dentro de un rato.",
        "try_after": "Por favor, espere la respuesta anterior y envíe el mensaje de nuevo.",
        "shorten": "Por favor, pruebe con un mensaje más corto o empiece una conversación nueva.",
        "report": "Intentarlo de nuevo no servirá hasta que el responsable de este servicio cambie la configuración.",
        "persists": "Si intentarlo de nuevo no sirve, por favor avise al responsable de este servicio.",
    },
}

FAREWELLS: Final[dict[str, str]] = {
    "credentials": "report",
    "model_not_found": "report",
    "tools_unsupported": "report",
    "bad_request": "report",
    "no_model": "report",
    "unknown_provider": "report",
    "unknown_tool": "report",
    "quota": "try_later",
    "rate_limited": "try_later",
    "model_overloaded": "try_later",
    "model_unreachable": "try_later",
    "provider_error": "try_later",
    "queue_timeout": "try_later",
    "model_stalled": "try_again",
    "model_timeout": "try_again",
    "reply_cut_off": "try_again",
    "empty_reply": "try_again",
    "malformed_reply": "try_again",
    "unknown_finish": "try_again",
    "busy": "try_after",
    "context_overflow": "shorten",
    "request_too_large": "shorten",
    "worker_lost": "persists",
    "internal_error": "persists",
}
"""What a person is told to do after a failure of this code: the key of a fixed text."""


_WORDS: Final[dict[str, frozenset[str]]] = {
    "en": frozenset(
        """the a an is are am was were be been what how much many more do does did i you he she it we they my your me
        us and or but if of to in on at by as so up for from with about this that these those can could will would
        should please when where who why which have has had not no yes all any some there here give tell show find
        make write send add list hello hi thanks thank today go""".split()
    ),
    "pt": frozenset(
        """o a os as é são foi está estou ser ter tem que quem quanto quantos quanta quantas como eu você ele ela nós
        meu minha meus minhas e ou mas se de do da dos das em no na nos nas ao à para por pelo pela este esta esse
        essa isso isto pode posso com sem sobre qual quais onde quando não sim um uma seu sua mais muito já horas
        hoje ontem amanhã favor obrigado obrigada olá oi bom boa dia mês ano me quero faça mostre diga liste envie
        também então""".split()
    ),
    "es": frozenset(
        """el la los las es son fue está estoy ser tener tiene que qué quién quien cuánto cuántos cuánta cuántas cuanto
        cómo como yo tú usted él ella nosotros mi mis y o pero si de del en al para por este esta ese esa eso esto
        puede puedo con sin sobre cuál cuáles cual dónde cuándo cuando no sí un una su más muy ya horas hoy ayer
        mañana gracias hola favor buenos buenas día mes año me quiero haz muestra muéstrame dime lista envía también
        entonces""".split()
    ),
}


def phrases(language: str) -> Phrases:
    """Return the fixed texts of a language (a tag such as ``pt-BR``); English where there are none."""
    return PHRASES.get(language.split("-", maxsplit=1)[0].lower(), PHRASES["en"])


def farewell(code: str) -> str:
    """Return the key of the last sentence of an answer that failed by ``code``."""
    return FAREWELLS.get(code, "try_again")


def guess_language(text: str) -> str:
    """Return ``pt``, ``es`` or ``en`` by the commonest words of ``text``; ``en`` when nothing speaks for another."""
    lowered = text[:_MOST_READ].lower()
    words = re.findall(r"[^\W\d_]+", lowered)
    scores = {tag: sum(word in known for word in words) for tag, known in _WORDS.items()}
    scores["es"] += 3 * bool(re.search(r"[¿¡ñ]", lowered))
    scores["pt"] += 3 * bool(re.search(r"[ãõç]", lowered))
    return max(scores, key=lambda tag: scores[tag])
