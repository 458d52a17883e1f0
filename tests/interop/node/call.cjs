// Calls stripe-node as it is told on its standard input, and says what came of it: a line of JSON for each call.
// {"port": 8000, "timeout": 30000, "at_once": false, "calls": [{"method": "charges.create", "args": [...], "key": "k"}]}
const Stripe = require("stripe");

async function call(stripe, { method, args, key, file }) {
  const path = method.split(".");
  const name = path.pop();
  const resource = path.reduce((found, each) => found[each], stripe);
  if (file !== undefined) args[0].file = { data: Buffer.from(file), name: "a.bin", type: "application/octet-stream" };
  try {
    const made = await resource[name](...args, key === undefined ? {} : { idempotencyKey: key });
    const { statusCode, requestId, idempotencyKey } = made.lastResponse;
    const answer = { statusCode, requestId, idempotencyKey, headers: made.lastResponse.headers };
    return { made: JSON.parse(JSON.stringify(made)), answer };
  } catch (error) {
    const { type, statusCode, code, message, requestId, headers } = error;
    return { error: { type, statusCode, code, message, requestId, headers } };
  }
}

async function main(told) {
  const stripe = new Stripe("sk_test_alice", {
    protocol: "http",
    host: "127.0.0.1",
    port: told.port,
    timeout: told.timeout,
    maxNetworkRetries: 2,
  });
  const results = [];
  for (const each of told.calls) results.push(told.at_once ? call(stripe, each) : await call(stripe, each));
  for (const result of await Promise.all(results)) process.stdout.write(JSON.stringify(result) + "\n");
}

let text = "";
process.stdin.on("data", (piece) => (text += piece));
process.stdin.on("end", () => main(JSON.parse(text)));
