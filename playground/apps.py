from django.apps import AppConfig


class PlaygroundConfig(AppConfig):
    name = "playground"

    def ready(self) -> None:
        from accounts.account_end import account_ended
        from playground.forgetting import forget

        account_ended.connect(forget, dispatch_uid="playground-forgets")
