// Everything that a program does with the official `openai` client, each under its name; what was seen goes to
// standard output as one JSON object. Takes the folder of the installed client; address and key come as the client
// itself reads them, from OPENAI_BASE_URL and OPENAI_API_KEY.

import { createRequire } from "node:module";

const OpenAI = createRequire(`${process.argv[2]}/`)("openai");
const { TEXT_MODEL, THINKING_MODEL, VISION_MODEL, PICTURE, LIMITED_KEY } = process.env;
const client = new OpenAI({ maxRetries: 0 });
const user = (content) => ({ role: "user", content });

const WEATHER = {
  name: "get_weather",
  description: "Current weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const ASKED = [user("What is the weather in Oslo?")];
const SCHEMA = {
  type: "object",
  properties: { river: { type: "string" }, length: { type: "integer" } },
  required: ["river", "length"],
  additionalProperties: false,
};

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    const { status, code, param, type, requestID } = error;
    return { name: error.constructor.name, status, code, param, type, requestID };
  }
  return null;
}

const walk = {
  async models() {
    const listed = [];
    for await (const model of client.models.list()) listed.push(model.id);
    return { listed, one: (await client.models.retrieve("Qwen/Qwen3-30B-A3B-FP8")).id };
  },

  async whole() {
    const { data, request_id } = await client.chat.completions
      .create({ model: THINKING_MODEL, messages: [user("Why is snow white? [[tokens=12]] [[thinking=5]]")] })
      .withResponse();
    const { message, finish_reason } = data.choices[0];
    return { message, finish_reason, usage: data.usage, model: data.model, request_id };
  },

  async stream() {
    const stream = await client.chat.completions.create({
      model: THINKING_MODEL,
      messages: [user("Name three rivers. [[tokens=20]] [[thinking=5]] [[pace=0.03]]")],
      stream: true,
      stream_options: { include_usage: true },
    });
    const seen = { content: "", reasoning: "", usage: null, finish_reason: null, chunks: 0 };
    for await (const chunk of stream) {
      seen.chunks += 1;
      seen.usage = chunk.usage ?? seen.usage;
      for (const { delta, finish_reason } of chunk.choices) {
        seen.content += delta.content ?? "";
        seen.reasoning += delta.reasoning ?? "";
        seen.finish_reason = finish_reason ?? seen.finish_reason;
      }
    }
    return seen;
  },

  async helper() {
    const stream = client.chat.completions.stream({ model: TEXT_MODEL, messages: [user("Hello [[tokens=9]]")] });
    let content = "";
    stream.on("content", (delta) => (content += delta));
    const final = await stream.finalChatCompletion();
    return { content, final: final.choices[0].message.content };
  },

  async tools() {
    const tools = [{ type: "function", function: WEATHER }];
    const first = await client.chat.completions.create({ model: TEXT_MODEL, messages: ASKED, tools });
    const { message, finish_reason } = first.choices[0];
    const answers = message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "4 degrees" }));
    const second = await client.chat.completions.create({
      model: TEXT_MODEL,
      messages: [...ASKED, message, ...answers],
      tools,
    });
    return { calls: message.tool_calls, finish_reason, then: second.choices[0].finish_reason };
  },

  async streamed_tools() {
    const stream = client.chat.completions.stream({
      model: THINKING_MODEL,
      messages: [user("What is the weather in Oslo? [[calls=2]]")],
      tools: [{ type: "function", function: WEATHER }],
      tool_choice: "required",
    });
    return (await stream.finalChatCompletion()).choices[0].message.tool_calls;
  },

  async runner() {
    const asked = [];
    const weather = (given) => (asked.push(given), "4 degrees");
    const tools = [{ type: "function", function: { ...WEATHER, function: weather, parse: JSON.parse } }];
    const runner = client.chat.completions.runTools({ model: TEXT_MODEL, messages: ASKED, tools, stream: true });
    return { content: await runner.finalContent(), asked };
  },

  async json() {
    const ask = async (response_format) => {
      const body = { model: TEXT_MODEL, messages: [user("The river Rhine as JSON")], response_format };
      return JSON.parse((await client.chat.completions.create(body)).choices[0].message.content);
    };
    const json_schema = { name: "river", strict: true, schema: SCHEMA };
    return { object: await ask({ type: "json_object" }), schema: await ask({ type: "json_schema", json_schema }) };
  },

  async image() {
    const content = [
      { type: "text", text: "What is this? [[tokens=8]]" },
      { type: "image_url", image_url: { url: PICTURE } },
    ];
    const answer = await client.chat.completions.create({ model: VISION_MODEL, messages: [user(content)] });
    return { content: answer.choices[0].message.content, usage: answer.usage };
  },

  async errors() {
    const ask = (body, options) => client.chat.completions.create({ model: TEXT_MODEL, messages: ASKED, ...body }, options);
    const stranger = new OpenAI({ maxRetries: 0, apiKey: `rc-${"0".repeat(48)}` });
    const limited = new OpenAI({ maxRetries: 0, apiKey: LIMITED_KEY });
    await limited.models.list();
    return {
      unknown_model: await failure(ask({ model: "gpt-7" })),
      wrong_type: await failure(ask({ temperature: "hot", stream: true })),
      refused_by_the_backend: await failure(ask({ model: "GLM-5.3-Flash", reasoning_effort: "xhigh" })),
      no_key: await failure(stranger.models.list()),
      unknown_path: await failure(client.get("/nothing")),
      no_such_model: await failure(client.models.retrieve("gpt-7")),
      too_many: await failure(limited.models.list()),
    };
  },

  async leaving() {
    const stream = await client.chat.completions.create({
      model: TEXT_MODEL,
      messages: [user("A long story [[tokens=400]] [[pace=0.05]]")],
      stream: true,
    });
    let chunks = 0;
    for await (const _ of stream) if ((chunks += 1) === 3) break;
    return { chunks, aborted: stream.controller.signal.aborted };
  },

  async speech() {
    const sound = await client.audio.speech.create({ model: "OmniVoice", voice: "alloy", input: "Hi", response_format: "wav" });
    return { type: sound.headers.get("content-type"), begins: Buffer.from(await sound.arrayBuffer()).toString("latin1", 0, 4) };
  },
};

const seen = {};
for (const [name, scene] of Object.entries(walk)) {
  try {
    seen[name] = await scene();
  } catch (error) {
    seen[name] = { failed: String(error?.stack ?? error) };
  }
}
console.log(JSON.stringify(seen));
