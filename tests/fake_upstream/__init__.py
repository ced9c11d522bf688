"""A model server on a socket that answers, or misbehaves, exactly as a test says.

    upstream.then(replies.answer(replies.completion()))     # the next request's reply; several queue up
    upstream.received[-1].json()                            # what the gateway sent

Replies are coroutines over a raw socket (`tests.fake_upstream.replies` has the usual ones), so anything can be said:
half heads, wrong lengths, cut bodies, silence.
"""
