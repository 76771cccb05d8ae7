// The vector itself: its picture, the numbers, the sentence, the Python code and the table.
import { drawBars } from "./bars.js";
import { decimals, field, part, root } from "./page.js";
import { sentence } from "./sentence.js";
import { SETS, introduction, program } from "./sets.js";
import { state } from "./state.js";
import { drawn, largestFirst, parsed } from "./vectors.js";

const MOST_ENTRIES = 1024;
const UNREADABLE = "Your numbers cannot be read. What is faded below belongs to the vector before.";
let x = drawn("normal", 32, 1);

export function showEntries(core) {
  const readable = renew();
  const options = SETS[state.set].options(state, x);
  const result = { ...core.solve(x, options), before: core.sparseness(x) };
  result.after = core.sparseness(result.value);
  part("threshold").hidden = !drawBars(part("bars"), { x, ...result, nonnegative: options.nonnegative ?? false });
  showNumbers(result);
  showDials(options);
  showTable(result.value);
  part("python").textContent = program(options, x);
  part("introduction").textContent = introduction(state);
  part("sentence").textContent = readable ? sentence(x, options, result) : UNREADABLE;
  root.toggleAttribute("data-outdated", !readable);
  part("copy").disabled = !readable;
  root.result = { x: [...x], options, ...result, value: [...result.value] };
}

// The vector that is asked for; what cannot be read leaves the one before. Returns whether it could be read.
function renew() {
  let wrong = "";
  try {
    x = state.kind === "own" ? parsed(state.own, MOST_ENTRIES) : drawn(state.kind, state.n, state.seed);
  } catch (error) {
    wrong = `${error.message}.`;
  }
  part("wrong").textContent = wrong;
  if (state.sorted) x = largestFirst(x);
  return wrong === "";
}

const ACTIVE = { both: "both", l1: "L1 alone", l2: "L2 alone", none: "neither" };

function showNumbers(result) {
  const sparseness = (value) => (Number.isFinite(value) ? decimals(value) : "undefined");
  const shown = {
    sparseness: `${sparseness(result.before)} → ${sparseness(result.after)}`,
    support: `${result.supportSize} of ${x.length}`,
    shift: decimals(result.shift),
    scale: decimals(Number.isFinite(result.shift) ? result.scale : NaN),
    norms: `${decimals(result.l1, 3)}, ${decimals(result.l2, 3)}`,
    distance: decimals(Math.hypot(...result.value.map((value, i) => value - x[i]))),
    active: result.supportSize === 0 ? "p is zero" : ACTIVE[result.active],
    unique: result.unique ? "yes" : "no: others are equally near",
    evaluations: String(result.evaluations),
  };
  for (const [name, text] of Object.entries(shown)) part(name).textContent = text;
}

// Beside each dial the number that is asked for, which of norms is not where the dial stands.
function showDials(options) {
  const numbers = { sparseness: state.sparseness.toFixed(2), l1: options.l1, l2: options.l2 };
  for (const name of SETS[state.set].dials.filter((dial) => dial in numbers)) {
    root.querySelector(`output[for=explorer-${name}]`).value = numbers[name];
    field(name).setAttribute("aria-valuetext", numbers[name]);
  }
}

function showTable(value) {
  const table = part("table");
  if (!table.closest("details").open) return;
  const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });
  const row = (entry, i) => {
    const line = document.createElement("tr");
    line.append(cell(i + 1), cell(String(entry)), cell(String(value[i])));
    return line;
  };
  table.replaceChildren(...Array.from(x, row));
}
