// express-idempotency and @node-idempotency/core, each in a small app on Express: node express.js NAME PORT
const express = require("express");

const CALLERS = ["Bearer alice-has-a-key", "Bearer bob-has-another"];
const MEDIA_TYPES = {
  "/orders": "application/json",
  "/refunds": "application/json",
  "/cookies": "application/json",
  "/charset": "application/json; charset=utf-8",
  "/text": "text/plain",
};
const [, , name, port] = process.argv;
const app = express();
app.use(express.json({ limit: "8mb" }));

let count = 0;
let failures = 0;

async function place(request, response) {
  if (!CALLERS.includes(request.get("Authorization"))) {
    response.status(401).send("{}");
    return;
  }
  const asked = request.body;
  await new Promise((resolve) => setTimeout(resolve, 1000 * (asked.seconds || 0.05)));
  if (asked.raise) throw new Error("the view was told to fail");
  response.set("Content-Type", MEDIA_TYPES[request.path]);
  if (asked.fail) {
    response.status(503).send(`{"failure": ${++failures}}`);
    return;
  }
  count += 1;
  response.set("Location", `/orders/${count}`);
  if (request.path === "/cookies") response.cookie("basket", `basket-${count}`);
  response.status(201).send(`{"id": ${count}, "tea": "für zwei"}`);
}

const SETUPS = {
  // As its README has it: the middleware, and a view that asks whether the answer was sent already.
  "express-idempotency": () => {
    const { idempotency, getSharedIdempotencyService } = require("express-idempotency");
    const view = async (request, response) => {
      if (getSharedIdempotencyService().isHit(request)) return;
      await place(request, response);
    };
    return [idempotency(), view];
  },
  // The core has no middleware of its own: onRequest before the view, onResponse with what it sends.
  "@node-idempotency/core": () => {
    const { Idempotency } = require("@node-idempotency/core");
    const { MemoryStorageAdapter } = require("@node-idempotency/storage-adapter-memory");
    const core = new Idempotency(new MemoryStorageAdapter());
    const STATUSES = { REQUEST_IN_PROGRESS: 409, IDEMPOTENCY_FINGERPRINT_MISSMATCH: 422, IDEMPOTENCY_KEY_LEN_EXEEDED: 400 };
    return async (request, response) => {
      const internal = { path: request.path, method: request.method, headers: request.headers, body: request.body };
      let known;
      try {
        known = await core.onRequest(internal);
      } catch (error) {
        if (!error.code) throw error;
        response.status(STATUSES[error.code] || 400).json({ error: error.message });
        return;
      }
      if (known) {
        response.set(known.additional.headers).status(known.additional.statusCode).send(known.body);
        return;
      }
      const send = response.send.bind(response);
      response.send = (body) => {
        response.send = send;
        const additional = { statusCode: response.statusCode, headers: response.getHeaders() };
        core.onResponse(internal, { body, additional }).then(() => send(body));
        return response;
      };
      await place(request, response);
    };
  },
};

const view = SETUPS[name]();
for (const path of Object.keys(MEDIA_TYPES)) {
  app.post(path, view);
  app.patch(path, view);
}
app.get("/count", (request, response) => response.json(count));
app.use((error, request, response, next) => {
  if (response.headersSent) return next(error);
  response.status(response.statusCode >= 400 ? response.statusCode : 500).json({ error: error.message });
});
app.listen(Number(port), "127.0.0.1");
