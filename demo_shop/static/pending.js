/**
 * Actions without a final answer, kept across reloads and crashes.
 * An action belongs to an account: a browser session of another account may not resume it. The CSRF token is never kept.
 */

/**
 * @typedef {object} Action
 * @property {string} name what is done, such as "checkout" or "refund:T-1"; one at a time of each name
 * @property {string} key the Idempotency-Key, made before the first send
 * @property {string} url
 * @property {string} body urlencoded, without the key and without the CSRF token
 * @property {number} startedAt milliseconds since 1970
 * @property {number} sends how often it was sent, by whichever page
 * @property {string} account
 * @property {string} [held] the reference under which a person looks into it: nobody asks for it unasked any more
 */

const PREFIX = "teapot.pending.";
const DAY = 24 * 60 * 60 * 1000;

/** Where storage is forbidden, actions live as long as the page. @type {Map<string, string>} */
const memory = new Map();

const shelf = {
  keys: () => attempt(() => Object.keys(localStorage), [...memory.keys()]),
  get: (/** @type {string} */ id) => attempt(() => localStorage.getItem(id), memory.get(id) ?? null),
  set: (/** @type {string} */ id, /** @type {string} */ text) => attempt(() => localStorage.setItem(id, text), memory.set(id, text)),
  remove: (/** @type {string} */ id) => attempt(() => localStorage.removeItem(id), memory.delete(id)),
};

/**
 * Make an action with a key of its own, and store it before anything is sent.
 * @param {{name: string, url: string, body: string, account: string}} what
 * @returns {Action}
 */
export function begin(what) {
  const action = { ...what, key: newKey(), startedAt: Date.now(), sends: 0 };
  shelf.set(place(action), JSON.stringify(action));
  return action;
}

/**
 * The unfinished actions of an account, oldest first. Those older than a day are dropped.
 * @param {string} account
 * @returns {Action[]}
 */
export function unfinished(account) {
  const found = [];
  for (const id of shelf.keys().filter((id) => id.startsWith(PREFIX))) {
    const action = read(id);
    if (!action || Date.now() - action.startedAt > DAY) shelf.remove(id);
    else if (action.account === account) found.push(action);
  }
  return found.sort((one, other) => one.startedAt - other.startedAt);
}

/**
 * @param {string} account
 * @param {string} name
 * @returns {Action | undefined}
 */
export function find(account, name) {
  return unfinished(account).find((action) => action.name === name);
}

/**
 * Count a send before it is made: if the page dies on the way, it may have been sent.
 * @param {Action} action
 */
export function countSend(action) {
  action.sends = sendsOf(action) + 1;
  keep(action);
}

/**
 * How often an action was sent, by this and all other pages. An action with an unknown count counts as sent.
 * @param {Action} action
 */
export function sendsOf(action) {
  const kept = read(place(action));
  return Math.max(action.sends ?? 1, (kept?.key === action.key && kept.sends) || 0);
}

/**
 * Mark an action for manual review. Its key is kept: once the review is done, it gets the answer.
 * @param {Action} action
 * @param {string} reference
 */
export function hold(action, reference) {
  action.held = reference;
  keep(action);
}

/**
 * Remove an action with a final answer. A newer one with the same name stays.
 * @param {Action} action
 */
export function finish(action) {
  if (read(place(action))?.key === action.key) shelf.remove(place(action));
}

/** A random UUID, also where the page did not come by HTTPS and crypto.randomUUID is missing. */
export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Keep what has changed of an action, unless it was finished or another was begun in its place. @param {Action} action */
function keep(action) {
  if (read(place(action))?.key === action.key) shelf.set(place(action), JSON.stringify(action));
}

/** @param {{account: string, name: string}} action */
function place({ account, name }) {
  return `${PREFIX}${account}.${name}`;
}

/** @param {string} id @returns {Action | null} */
function read(id) {
  try {
    return JSON.parse(shelf.get(id) ?? "null");
  } catch {
    return null;
  }
}

/** @template T @param {() => T} use @param {T} otherwise */
function attempt(use, otherwise) {
  try {
    return use();
  } catch {
    return otherwise;
  }
}
