/**
 * The live ledger of the lab: asks for /ledger.json every second while somebody is looking, and draws it.
 */

import { element } from "./page.js";
import { euro } from "./words.js";

/**
 * @typedef {{number: string, times: number, account: string, total: number, state: string, charges: number, reference: string | null}} Row
 * @typedef {{orders: Row[], totals: Record<string, number>, switches: Record<string, number>, gateway: boolean}} Ledger
 */

const EVERY = 1000;
const region = document.querySelector("[data-ledger]");
const rows = region?.querySelector("tbody");
const state = region?.querySelector("[data-ledger-state]");
const alarm = region?.querySelector("[data-ledger-alarm]");

/** The numbers last drawn; a changed one is highlighted for a moment. @type {Record<string, number>} */
let known = {};

/** The data of the rows: a row is drawn again only if its data has changed, so that a link keeps its focus. */
let drawn = "";

async function tick() {
  if (!document.hidden) await refresh();
  setTimeout(tick, EVERY);
}

async function refresh() {
  try {
    const response = await fetch(region?.getAttribute("data-ledger") ?? "", { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(String(response.status));
    const ledger = await response.json();
    draw(ledger);
    for (const [name, left] of Object.entries(ledger.switches)) turn(name, left);
    show(ledger.gateway ? "live" : "the gateway does not answer; its charges are not known");
  } catch {
    show("no answer from the shop; asking again");
  }
}

/** @param {Ledger} ledger */
function draw({ orders, totals, gateway }) {
  for (const [name, value] of Object.entries(totals)) {
    const counter = region?.querySelector(`[data-count="${name}"]`);
    if (!counter) continue;
    const isKnown = gateway || !["charges", "doubles"].includes(name);
    counter.textContent = isKnown ? String(value) : "?";
    counter.parentElement?.classList.toggle("is-new", name in known && known[name] !== value);
    counter.parentElement?.classList.toggle("is-bad", name === "doubles" && value > 0);
  }
  if (alarm && totals.doubles > (known.doubles ?? 0)) {
    alarm.textContent = `${totals.doubles} charged more than once for what was bought once.`;
  }
  known = totals;
  const news = JSON.stringify([orders, gateway]);
  if (news === drawn) return;
  drawn = news;
  rows?.replaceChildren(...(orders.length ? orders.map((order) => drawRow(order, gateway)) : [emptyRow()]));
}

/**
 * Show the current state of a switch: a request may have used it up, or somebody else may have turned it.
 * @param {string} name
 * @param {number} left
 */
function turn(name, left) {
  const item = document.querySelector(`[data-switch="${CSS.escape(name)}"]`);
  const place = item?.querySelector(".switch-state");
  if (!item || !(place instanceof HTMLElement)) return;
  const states = place.dataset.states?.split(" ");
  const text = states ? states[left] : left ? `next ${left}` : "off";
  if (place.textContent === text) return;
  place.textContent = text;
  item.classList.toggle("is-on", left > 0);
  item.querySelector("[data-clear]")?.toggleAttribute("hidden", left === 0);
  item.querySelector("[data-flip]")?.setAttribute("value", String(1 - left));
  item.querySelector("[data-flip-to]")?.replaceChildren(`Turn ${states?.[1 - left]}`);
}

/** @param {Row} order @param {boolean} gateway whether the charges are known */
function drawRow(order, gateway) {
  const isDouble = order.charges > 1;
  const desk = `/support?reference=${encodeURIComponent(order.reference ?? order.number)}`;
  const number = element("th", { role: "rowheader", scope: "row" }, element("a", { href: desk }, order.number));
  if (order.times > 1) number.append(` (${order.times} orders)`);
  const charges = element("span", { className: isDouble ? "charges charges-double" : "charges" }, gateway ? `${order.charges} ×` : "?");
  if (isDouble) charges.append(" double");
  return element(
    "tr",
    { role: "row", className: isDouble ? "is-double" : "" },
    number,
    element("td", { role: "cell" }, charges),
    element("td", { role: "cell" }, element("span", { className: `badge badge-${order.state.replace(/\W+/g, "-")}` }, order.state)),
    element("td", { role: "cell", className: "number" }, euro(order.total)),
    element("td", { role: "cell" }, order.account),
  );
}

function emptyRow() {
  return element("tr", { role: "row" }, element("td", { role: "cell", colSpan: 5, className: "quiet" }, "No orders yet. Buy something in another tab."));
}

/** @param {string} text */
function show(text) {
  if (state && state.textContent !== text) state.textContent = text;
  region?.classList.toggle("is-live", text === "live");
}

document.addEventListener("visibilitychange", () => show(document.hidden ? "paused" : "live"));
show("asking …");
tick();
