// The explorer: dials around the compiled core. What happens when somebody turns one, or presses a button.
import { load } from "./core.js";
import { showEntries } from "./entries.js";
import { field, part, root } from "./page.js";
import { SETS } from "./sets.js";
import { readAddress, readAs, state, writeAddress } from "./state.js";
import { listenToTurning, showSpace } from "./turning.js";
import { KINDS, long, rounded } from "./vectors.js";

let core;

// ---- what is shown ----

// Everything at most once for each picture that the screen shows.
let waiting = false;
function update() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    showState();
    showEntries(core);
    showSpace(core);
    restLater();
    root.dataset.state = "ready";
  });
}

function showState() {
  for (const [name, value] of Object.entries(state)) {
    const control = field(name);
    // Not while somebody writes in it.
    if (control === document.activeElement && control.matches("[type=text], [type=number]")) continue;
    if (control?.type === "checkbox") control.checked = value;
    else if (control) control.value = value;
  }
  showUnreadable();
  const shown = new Set([...SETS[state.set].dials, state.kind === "own" ? "own" : "drawn"]);
  for (const element of root.querySelectorAll("[data-dial]")) element.hidden = !shown.has(element.dataset.dial);
}

// What is written beside the picture and is no number that can be drawn.
function showUnreadable() {
  const wrong = Object.entries({ x1: "x₁", x2: "x₂", x3: "x₃" }).filter(([name]) => {
    const unreadable = readAs(name, field(name).value) === undefined;
    field(name).setAttribute("aria-invalid", unreadable);
    return unreadable;
  });
  const names = wrong.map(([, name]) => name).join(", ");
  part("wrong3").textContent = names && `${names}: give a number from −2 to 2. The picture shows the one before.`;
}

// Once the dials rest: read out the sentence, and put the state into the address, which browsers allow only so often.
let rest;
function restLater() {
  clearTimeout(rest);
  rest = setTimeout(() => {
    part("spoken").textContent = part("sentence").textContent;
    writeAddress();
  }, 500);
}

// ---- what somebody does ----

function changed({ target }) {
  const value = target.type === "checkbox" ? target.checked : readAs(target.name, target.value);
  if (!(target.name in state)) return;
  stopSweep();
  if (value !== undefined) state[target.name] = value;
  update();
}

let sweep = null;
function stopSweep() {
  cancelAnimationFrame(sweep);
  sweep = null;
  part("sweep").textContent = "Play";
}

// Turns the first dial from its least to its most and back, in eight seconds.
function startSweep() {
  const dial = SETS[state.set].dials[0];
  const [min, max] = [field(dial).min, field(dial).max].map(Number);
  const begin = performance.now();
  const step = (now) => {
    const phase = ((now - begin) / 4000) % 2;
    state[dial] = rounded(min + (max - min) * (phase < 1 ? phase : 2 - phase));
    update();
    sweep = requestAnimationFrame(step);
  };
  part("sweep").textContent = "Stop";
  sweep = requestAnimationFrame(step);
}

async function copy({ currentTarget: button }) {
  if (navigator.clipboard) await navigator.clipboard.writeText(part("python").textContent);
  else copySelected(part("python"));
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

// For pages that are served without encryption, which have no clipboard.
function copySelected(element) {
  getSelection().selectAllChildren(element);
  document.execCommand("copy");
}

function race() {
  const n = 2 ** 20;
  const milliseconds = core.time(long(n), { sparseness: 0.9 }, 12).toFixed(1);
  part("raced").textContent =
    `${n.toLocaleString("en")} doubles to sparseness 0.9 in ${milliseconds} ms, in this browser, on one thread.`;
}

// ---- the start ----

function fillChoices() {
  const options = (table) => Object.entries(table).map(([value, { name }]) => new Option(name, value));
  field("set").replaceChildren(...options(SETS));
  field("kind").replaceChildren(...options(KINDS), new Option("your own numbers", "own"));
}

function anotherVector() {
  state.seed += 1;
  update();
}

function goToAddress() {
  readAddress();
  update();
}

function listen() {
  root.addEventListener("input", changed);
  part("another").addEventListener("click", anotherVector);
  part("sweep").addEventListener("click", () => (sweep === null ? startSweep() : stopSweep()));
  part("copy").addEventListener("click", copy);
  part("race").addEventListener("click", race);
  part("table").closest("details").addEventListener("toggle", update);
  listenToTurning(update);
  window.addEventListener("hashchange", goToAddress);
  new ResizeObserver(update).observe(root);
  new MutationObserver(update).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

try {
  core = await load(new URL("hoyer.wasm", import.meta.url));
  fillChoices();
  listen();
  goToAddress();
} catch (error) {
  root.dataset.state = "failed";
  part("failure").textContent = `The explorer could not start: ${error.message}`;
}
