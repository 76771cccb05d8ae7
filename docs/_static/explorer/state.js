// What the dials are set to. It stands in the address, too, so that a view can be linked to.
import { SETS } from "./sets.js";
import { KINDS } from "./vectors.js";

const START = {
  set: "sparseness", sparseness: 0.7, l1: 0.6, l2: 0.8, norm: "keep", nonnegative: false,
  kind: "normal", n: 32, seed: 1, sorted: true, own: "3, 1, -2, 0.5, 0.25, -4, 1.5, 0.1",
  x1: 1.3, x2: 0.85, x3: 0.5,
};
const CHOICES = { set: SETS, kind: { ...KINDS, own: true }, norm: { one: true, keep: true, nearest: true } };
// Beyond these nothing can be drawn.
const LIMITS = { sparseness: [0, 1], l1: [0.02, 1.2], l2: [0.02, 1.2], n: [2, 1024], seed: [1, 1e6] };

export const state = { ...START };

export function readAddress() {
  const given = [...new URLSearchParams(location.hash.slice(1))].filter(([name]) => Object.hasOwn(START, name));
  const read = given.map(([name, text]) => [name, readAs(name, text)]).filter(([, value]) => value !== undefined);
  Object.assign(state, START, Object.fromEntries(read));
}

export function writeAddress() {
  const changed = Object.entries(state).filter(([name, value]) => value !== START[name]);
  const address = changed.length ? `#${new URLSearchParams(changed)}` : location.pathname + location.search;
  history.replaceState(null, "", address);
}

// The value that a text stands for; undefined if it makes no sense.
export function readAs(name, text) {
  if (CHOICES[name]) return Object.hasOwn(CHOICES[name], text) ? text : undefined;
  if (typeof START[name] === "boolean") return text === "true";
  if (typeof START[name] === "string") return text;
  const [low, high] = LIMITS[name] ?? [-2, 2];
  const value = Number(text);
  return text.trim() !== "" && value >= low && value <= high ? value : undefined;
}
