"""The demo's words in Chinese."""

from collections.abc import Iterator

from gateway.demo.facts import Facts
from gateway.demo.subject import Subject


def about_prompt(subject: Subject, facts: Facts) -> str:
    return "\n\n".join(_sections(subject, facts))


def about_result(result: str, table: str) -> str:
    body = table or f"> {result.strip() or '（空）'}"
    return (
        f"## 工具的返回\n\n{body}\n\n"
        "以上是工具返回的原文。这里是演示后端，不是模型：它会调用工具并展示结果，但不会作出判断。"
    )


def filler(subject: Subject) -> str:
    words = "、".join(f"*{word}*" for word in subject.key_words[:3]) or "这个问题"
    return (
        f"\n\n再多说一些关于{words}的内容，因为要求了更长的回答。"
        "这些文字不含知识，只是让流式输出、滚动和计数有内容可用。"
    )


def result_table_head() -> str:
    return "| 字段 | 值 |\n|---|---|\n"


def _sections(subject: Subject, facts: Facts) -> Iterator[str]:
    number = f"（第 {facts.choice + 1} 个回答）" if facts.choice else ""
    yield f"## {subject.topic}{number}"
    yield (
        f"这是**演示回答**，不是模型生成的：演示后端代替 `{facts.model_id}` 作答，"
        "这样没有 GPU 也能试用聊天、API Key 和计量。"
    )
    yield "**从消息里能看到的**\n\n" + "\n".join(f"- {line}" for line in _seen(subject, facts))
    if subject.mentions("对比", "比较", "区别", "表格", "vs", "优缺点"):
        yield _comparison(subject)
    if subject.mentions("代码", "函数", "脚本", "程序", "示例", "例子", "python", "code"):
        yield _code()
    if subject.mentions("数学", "公式", "方程", "积分", "证明"):
        yield "来看一个公式：$e^{i\\pi} + 1 = 0$，以及单独一行的\n\n$$\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$$"
    yield _request_table(facts)
    yield "想让真正的模型回答，请启动一个 OpenAI 兼容的服务，并把网关的 `UPSTREAM_URL` 指向它，其余无需改动。"


def _seen(subject: Subject, facts: Facts) -> Iterator[str]:
    kind = "提问" if subject.is_question else "请求"
    yield f"看起来是一个{kind}，共 {len(subject.text.strip())} 个字符、{subject.sentences} 句。"
    if subject.key_words:
        yield "关键词：" + "、".join(f"*{word}*" for word in subject.key_words) + "。"
    if subject.numbers:
        yield "其中的数字：" + "、".join(subject.numbers[:5]) + "。"
    if facts.system_text:
        yield f"system 消息的要求：“{facts.system_text[:80]}”"
    if facts.earlier:
        yield f"这是第 {facts.turn} 轮，对话从“{facts.earlier[:40]}”开始。"
    if facts.images:
        yield f"附带 {facts.images} 张图片，计 {facts.image_tokens} 个 token。"


def _comparison(subject: Subject) -> str:
    first, second = (*subject.names, *subject.key_words, "前者", "后者")[:2]
    return (
        f"| | {first} | {second} |\n|---|---|---|\n"
        f"| 出现次数 | {subject.text.count(first)} | {subject.text.count(second)} |\n"
        f"| 字数 | {len(first)} | {len(second)} |\n"
        "| 结论 | 请问模型 | 请问模型 |"
    )


def _code() -> str:
    return (
        "一小段代码，看看它如何显示：\n\n"
        "```python\n"
        "def key_words(text: str) -> list[str]:\n"
        '    """取文本中最长的几个词，由长到短。"""\n'
        "    words = {word.strip('，。？！') for word in text.split()}\n"
        "    return sorted(words, key=len, reverse=True)[:5]\n"
        "```"
    )


def _request_table(facts: Facts) -> str:
    thinking = f"{facts.thinking_tokens} 个 token" if facts.thinking_tokens else "无"
    rows = [("模型", f"`{facts.model_id}`"), ("输入", f"{facts.prompt_tokens} 个 token"), ("思考", thinking)]
    if facts.effort:
        rows.append(("思考档位", f"`{facts.effort}`"))
    if facts.temperature is not None:
        rows.append(("温度", f"{facts.temperature}"))
    if facts.max_tokens is not None:
        rows.append(("上限", f"{facts.max_tokens} 个 token"))
    return "| 本次请求 | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)
