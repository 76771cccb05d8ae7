// The benchmark plots: curves of all contestants, and every goal, met or missed, from the committed results.
import { chart, markOf, made, short } from "./chart.js";

const root = document.querySelector(".plots");
const part = (name) => root.querySelector(`[data-part="${name}"]`);
const off = new Set();
let results;

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

// ---- curves ----

function fillCurves() {
  const groups = results.filter(({ curves }) => curves.length).map(({ name, curves }) => {
    const group = element("optgroup", { label: name });
    const index = results.findIndex((one) => one.name === name);
    group.append(...curves.map((curve, i) => new Option(curve.name, `${index}.${i}`)));
    return group;
  });
  part("curve").replaceChildren(...groups);
}

function chosenCurve() {
  const [i, j] = part("curve").value.split(".").map(Number);
  return { ...results[i].curves[j], from: results[i] };
}

// Nanoseconds for each entry, or times the baseline at the same length.
function measured({ series, baseline }, relative) {
  const base = series.find(({ name }) => name === baseline)?.points ?? [];
  const unit = ({ n, rows }) => {
    if (!relative) return n * rows * 1e-9;
    return base.find((point) => point.n === n && point.rows === rows)?.seconds[0];
  };
  return series.map(({ name, points }, index) => ({
    name, index, points: points.filter(unit).map((point) => pointOf(name, point, unit(point), relative)),
  }));
}

function pointOf(name, { n, rows, seconds }, unit, relative) {
  const [y, low, high] = seconds.map((value) => value / unit);
  const [length, count] = [n, rows].map((number) => number.toLocaleString("en"));
  const size = rows === 1 ? `one vector of ${length}` : `${count} × ${length}`;
  const words = relative ? `${short(y)} times the baseline` : `${short(y)} ns per entry`;
  return { n, rows, y, low, high, text: `${name}, ${size}: ${words}` };
}

function showCurves() {
  const curve = chosenCurve();
  const relative = part("unit").value === "baseline";
  const all = measured(curve, relative);
  const series = all.filter(({ name, points }) => points.length && !off.has(name));
  const yLabel = relative ? `times ${curve.baseline}` : "nanoseconds per entry";
  part("baseline").textContent = `times ${curve.baseline}`;
  const label = `${curve.from.name}: ${curve.name}, ${yLabel}. The table below has the numbers.`;
  part("title").textContent = `${curve.from.name}: ${curve.name}`;
  part("chart").replaceChildren(...(series.length ? [chart(series, { label, yLabel, width: part("chart").clientWidth })] : []));
  part("legend").replaceChildren(...all.filter(({ points }) => points.length).map(legendEntry));
  showCurveTable(all);
  const link = element("a", { href: curve.from.report, textContent: "all its figures" });
  part("source").replaceChildren(`${curve.from.machine}, ${curve.from.date}; medians with quartiles. `, link);
}

function legendEntry({ name, index }) {
  const line = made("line", { x1: -8, x2: 8, y1: 0, y2: 0, class: "sample" });
  const curve = made("g", { class: `curve c${index % 9}` }, line, markOf(index, { class: "dot" }));
  const swatch = made("svg", { viewBox: "-8 -6 16 12", width: 22, height: 16, "aria-hidden": "true" }, curve);
  const button = element("button", { type: "button" }, swatch, ` ${name}`);
  button.setAttribute("aria-pressed", String(!off.has(name)));
  button.addEventListener("click", () => {
    if (!off.delete(name)) off.add(name);
    showCurves();
    [...part("legend").children].find((other) => other.textContent.trim() === name)?.focus();
  });
  return button;
}

function showCurveTable(series) {
  const places = new Map(series.flatMap(({ points }) => points.map((p) => [`${p.rows} × ${p.n}`, p])));
  const head = element("tr", {}, ...["vectors × entries", ...series.map(({ name }) => name)].map((textContent) => {
    const cell = element("th", { textContent });
    cell.scope = "col";
    return cell;
  }));
  const rows = [...places].map(([place, { n, rows: count }]) => {
    const values = series.map(({ points }) => points.find((p) => p.n === n && p.rows === count)?.y);
    return element("tr", {}, ...[place, ...values.map((value) => (value === undefined ? "" : short(value)))].map(
      (textContent) => element("td", { textContent })));
  });
  part("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

// ---- goals ----

const WORDS = { missed: "missed", firm: "met", stretch: "more than met" };

function fillGoals() {
  part("part").replaceChildren(new Option("everything", ""), ...results.map(({ name }) => new Option(name)));
}

// How much of what was allowed was used: below 1 the goal is met.
const used = ({ firm, ratio, faster }, value = ratio[0]) => (faster ? firm / value : value / firm);

function showGoals() {
  const chosen = part("part").value;
  const missedOnly = part("missed").checked;
  const parts = results.filter(({ name }) => !chosen || name === chosen);
  const goals = parts.flatMap(({ name, report, goals: some }) => some.map((one) => ({ ...one, name, report })));
  const shown = goals.filter(({ reached }) => !missedOnly || reached === "missed");
  const count = goals.filter(({ reached }) => reached === "missed").length;
  part("count").textContent = `${goals.length} goals, ${count} missed.`;
  part("goals").replaceChildren(...shown.map(goalRow));
}

function goalRow(goal) {
  const { case: name, against, reached } = goal;
  const what = element("td", {}, element("span", { className: "case", textContent: name }), ` against ${against}`,
    element("small", { textContent: goal.name }));
  const state = element("td", { className: `state ${reached}`, textContent: WORDS[reached] });
  const [goalCell, measuredCell] = [wanted(goal), got(goal)].map((textContent) => element("td", { textContent }));
  return element("tr", {}, what, goalCell, measuredCell, element("td", {}, picture(goal)), state);
}

const wanted = ({ firm, faster, words }) =>
  words ? words.split(":")[0] : faster ? `at least ${short(firm)} × faster` : `at most ${short(firm)} ×`;
const got = ({ ratio, faster, words }) =>
  words ? words.split(": ")[1] : `${short(ratio[0])} ×${faster ? " faster" : ""}`;

// A line from a quarter of the goal to twice of it; beyond that the mark stays at its end.
function picture(goal) {
  const svg = made("svg", { viewBox: "0 0 150 20", width: 150, height: 20, "aria-hidden": "true" });
  if (goal.words) return svg;
  const at = (value) => 8 + 134 * Math.max(0, Math.min(1, (Math.log2(value) + 2) / 3));
  svg.append(made("line", { x1: at(used(goal)), x2: at(1), y1: 10, y2: 10, class: `reach ${goal.reached}` }));
  svg.append(made("line", { x1: at(1), x2: at(1), y1: 2, y2: 18, class: "goal" }));
  svg.append(made("circle", { cx: at(used(goal)), cy: 10, r: 5, class: `at ${goal.reached}` }));
  return svg;
}

try {
  const answer = await fetch(new URL("results.json", import.meta.url));
  if (!answer.ok) throw new Error(`results.json: ${answer.status}`);
  results = await answer.json();
  fillCurves();
  fillGoals();
  for (const name of ["curve", "unit"]) part(name).addEventListener("change", showCurves);
  for (const name of ["part", "missed"]) part(name).addEventListener("change", showGoals);
  new ResizeObserver(showCurves).observe(root);
  showGoals();
  root.dataset.state = "ready";
} catch (error) {
  root.dataset.state = "failed";
  part("failure").textContent = `The plots could not be drawn: ${error.message}`;
}
