"""Refusals in the shape vLLM-like servers give them: a status and an OpenAI error body.

Refusal
├── BadRequest          400, a check behind the parser
├── UnreadableBody      422, the parser itself
└── NoSuchModel         404
"""

from typing import Any


class Refusal(Exception):
    status = 400
    type = "BadRequestError"

    def __init__(self, text: str, *, status: int | None = None, param: str | None = None) -> None:
        super().__init__(text)
        self.text, self.param = text, param
        if status is not None:
            self.status = status

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.text, "type": self.type, "param": self.param, "code": self.status}}


class BadRequest(Refusal):
    pass


class UnreadableBody(Refusal):
    status = 422
    type = "UnprocessableEntityError"

    def __init__(self, fault: str) -> None:
        super().__init__(f"Failed to deserialize the JSON body into the target type: {fault}")


class NoSuchModel(Refusal):
    status = 404
    type = "NotFoundError"

    def __init__(self, model_id: object) -> None:
        super().__init__(f"The model `{model_id}` does not exist.", param="model")
