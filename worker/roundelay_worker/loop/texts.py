"""The fixed texts: what the model is told at a limit, and what a person reads when no model can write it.

Texts for the model are in English, whatever the language of the conversation; texts for a person exist
in the languages of ``PHRASES``: adding one is adding a table.
"""

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
    "this limit was reached, name at most three points of what was left undone because of it, and ask whether to go "
    "on. Announce nothing that you would still do: nothing happens after this answer. "
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
        "done": "What was done:",
        "found": "What was found:",
        "more_found": "More lookups: {count}",
        "failed_steps": "What did not work:",
        "cut": "My answer got too long and was cut here. Shall I go on?",
        "undone": "What was not done:",
        "uncertain": "What may or may not have been done (please check):",
        "nothing": "Nothing was done yet.",
        "more": "… and {count} more",
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
        "done": "O que foi feito:",
        "found": "O que foi encontrado:",
        "more_found": "Outras consultas: {count}",
        "failed_steps": "O que não funcionou:",
        "cut": "A minha resposta ficou longa demais e foi cortada aqui. Devo continuar?",
        "undone": "O que não foi feito:",
        "uncertain": "O que pode ou não ter sido feito (verifique, por favor):",
        "nothing": "Nada foi feito ainda.",
        "more": "… e mais {count}",
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
        "done": "Lo que se hizo:",
        "found": "Lo que se encontró:",
        "more_found": "Otras consultas: {count}",
        "failed_steps": "Lo que no funcionó:",
        "cut": "Mi respuesta era demasiado larga y se cortó aquí. ¿Debo continuar?",
        "undone": "Lo que no se hizo:",
        "uncertain": "Lo que pudo o no haberse hecho (por favor, compruébelo):",
        "nothing": "Todavía no se hizo nada.",
        "more": "… y {count} más",
        "go_on": "¿Debo continuar?",
        "try_again": "Por favor, inténtelo de nuevo.",
        "try_later": "Por favor, inténtelo de nuevo dentro de un rato.",
        "try_after": "Por favor, espere la respuesta anterior y envíe el mensaje de nuevo.",
        "shorten": "Por favor, pruebe con un mensaje más corto o empiece una conversación nueva.",
        "report": "Intentarlo de nuevo no servirá hasta que el responsable de este servicio cambie la configuración.",
        "persists": "Si intentarlo de nuevo no sirve, por favor avise al responsable de este servicio.",
    },
    "de": {
        "round_limit": "Ich habe vor dem Ende aufgehört: Die Grenze der Schritte für diese Antwort ist erreicht.",
        "token_limit": "Ich habe vor dem Ende aufgehört: Die Grenze der Tokens für diese Antwort ist erreicht.",
        "timed_out": "Ich habe vor dem Ende aufgehört: Die Zeit für diese Antwort ist abgelaufen.",
        "no_progress": "Ich habe vor dem Ende aufgehört: Dieselben Schritte wiederholten sich ohne Fortschritt.",
        "refused": "Bei dieser Anfrage kann ich nicht helfen.",
        "cancelled": "Diese Antwort wurde abgebrochen.",
        "failed": "Etwas ist schiefgegangen, und ich konnte diese Antwort nicht beenden.",
        "done": "Was getan wurde:",
        "found": "Was gefunden wurde:",
        "more_found": "Weitere Abfragen: {count}",
        "failed_steps": "Was nicht geklappt hat:",
        "cut": "Meine Antwort wurde zu lang und ist hier abgeschnitten. Soll ich weitermachen?",
        "undone": "Was nicht getan wurde:",
        "uncertain": "Was vielleicht getan wurde, vielleicht nicht (bitte prüfen):",
        "nothing": "Bisher wurde nichts getan.",
        "more": "… und {count} weitere",
        "go_on": "Soll ich weitermachen?",
        "try_again": "Bitte versuchen Sie es noch einmal.",
        "try_later": "Bitte versuchen Sie es in einer Weile noch einmal.",
        "try_after": "Bitte warten Sie die vorige Antwort ab und senden Sie die Nachricht dann noch einmal.",
        "shorten": "Bitte versuchen Sie es mit einer kürzeren Nachricht oder beginnen Sie ein neues Gespräch.",
        "report": "Ein neuer Versuch hilft erst, wenn die Betreiber dieses Dienstes die Einstellungen geändert haben.",
        "persists": "Wenn ein neuer Versuch nicht hilft, sagen Sie es bitte den Betreibern dieses Dienstes.",
    },
    "fr": {
        "round_limit": "Je me suis arrêté avant la fin : la limite d'étapes de cette réponse est atteinte.",
        "token_limit": "Je me suis arrêté avant la fin : la limite de tokens de cette réponse est atteinte.",
        "timed_out": "Je me suis arrêté avant la fin : la limite de temps de cette réponse est atteinte.",
        "no_progress": "Je me suis arrêté avant la fin : les mêmes étapes se répétaient sans progrès.",
        "refused": "Je ne peux pas aider pour cette demande.",
        "cancelled": "Cette réponse a été annulée.",
        "failed": "Quelque chose s'est mal passé et je n'ai pas pu terminer cette réponse.",
        "done": "Ce qui a été fait :",
        "found": "Ce qui a été trouvé :",
        "more_found": "Autres recherches : {count}",
        "failed_steps": "Ce qui n'a pas fonctionné :",
        "cut": "Ma réponse était trop longue et s'arrête ici. Dois-je continuer ?",
        "undone": "Ce qui n'a pas été fait :",
        "uncertain": "Ce qui a peut-être été fait, ou non (à vérifier, s'il vous plaît) :",
        "nothing": "Rien n'a encore été fait.",
        "more": "… et {count} de plus",
        "go_on": "Dois-je continuer ?",
        "try_again": "Veuillez réessayer.",
        "try_later": "Veuillez réessayer dans un moment.",
        "try_after": "Veuillez attendre la réponse précédente, puis renvoyer le message.",
        "shorten": "Veuillez essayer un message plus court ou commencer une nouvelle conversation.",
        "report": "Réessayer ne servira à rien tant que le responsable de ce service n'aura pas changé ses réglages.",
        "persists": "Si réessayer ne sert à rien, veuillez prévenir les responsables de ce service.",
    },
    "it": {
        "round_limit": "Mi sono fermato prima della fine: il limite di passi di questa risposta è stato raggiunto.",
        "token_limit": "Mi sono fermato prima della fine: il limite di token di questa risposta è stato raggiunto.",
        "timed_out": "Mi sono fermato prima della fine: il limite di tempo di questa risposta è stato raggiunto.",
        "no_progress": "Mi sono fermato prima della fine: gli stessi passi si ripetevano senza progressi.",
        "refused": "Non posso aiutare con questa richiesta.",
        "cancelled": "Questa risposta è stata annullata.",
        "failed": "Qualcosa è andato storto e non ho potuto finire questa risposta.",
        "done": "Che cosa è stato fatto:",
        "found": "Che cosa è stato trovato:",
        "more_found": "Altre ricerche: {count}",
        "failed_steps": "Che cosa non ha funzionato:",
        "cut": "La mia risposta era troppo lunga ed è stata tagliata qui. Devo continuare?",
        "undone": "Che cosa non è stato fatto:",
        "uncertain": "Che cosa forse è stato fatto, forse no (da controllare, per favore):",
        "nothing": "Finora non è stato fatto nulla.",
        "more": "… e altri {count}",
        "go_on": "Devo continuare?",
        "try_again": "Per favore, riprova.",
        "try_later": "Per favore, riprova tra un po'.",
        "try_after": "Per favore, aspetta la risposta precedente e invia di nuovo il messaggio.",
        "shorten": "Per favore, prova con un messaggio più corto o inizia una nuova conversazione.",
        "report": "Riprovare non servirà finché chi gestisce questo servizio non ne avrà cambiato le impostazioni.",
        "persists": "Se riprovare non serve, per favore avvisa chi gestisce questo servizio.",
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


def phrases(language: str) -> Phrases:
    """Return the fixed texts of a language (a tag such as ``pt-BR``); English where there are none."""
    return PHRASES.get(language.split("-", maxsplit=1)[0].lower(), PHRASES["en"])


def retryable(code: str) -> bool:
    """Say whether the same message may go better when it is sent again, without anybody changing anything."""
    return FAREWELLS.get(code, "try_again") in ("try_again", "try_later", "try_after")


def farewell(code: str) -> str:
    """Return the key of the last sentence of an answer that failed by ``code``."""
    return FAREWELLS.get(code, "try_again")
