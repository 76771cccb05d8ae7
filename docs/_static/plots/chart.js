// A chart of curves on logarithmic axes, as SVG; no other library is needed.

const SVG = "http://www.w3.org/2000/svg";
const EDGE = { left: 62, right: 14, top: 14, bottom: 46 };
// Safe for colour-blind readers, and every curve has a mark of its own as well.
const STYLES = ["circle", "square", "diamond", "triangle", "cross", "ring", "down", "plus", "bar"];
const MARKS = {
  circle: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
  ring: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0M-2,0a2,2 0 1,1 4,0a2,2 0 1,1 -4,0",
  square: "M-3.5,-3.5h7v7h-7z",
  diamond: "M0,-5l5,5l-5,5l-5,-5z",
  triangle: "M0,-4.5l4.5,8h-9z",
  down: "M0,4.5l4.5,-8h-9z",
  cross: "M-4,-2l2,-2l2,2l2,-2l2,2l-2,2l2,2l-2,2l-2,-2l-2,2l-2,-2l2,-2z",
  plus: "M-1.2,-4.5h2.4v3.3h3.3v2.4h-3.3v3.3h-2.4v-3.3h-3.3v-2.4h3.3z",
  bar: "M-4.5,-1.5h9v3h-9z",
};

export function made(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const markOf = (index, attributes = {}) => made("path", { d: MARKS[STYLES[index % STYLES.length]], ...attributes });

// series: [{ name, index, points: [{ n, y, low, high, text }] }]
export function chart(series, { label, yLabel, width }) {
  const size = { width, height: Math.round(Math.max(300, Math.min(460, 0.6 * width))) };
  const points = series.flatMap((one) => one.points);
  const x = logarithmic(points.map(({ n }) => n), EDGE.left, size.width - EDGE.right, 2);
  const y = logarithmic(points.flatMap(({ low, high }) => [low, high]), size.height - EDGE.bottom, EDGE.top, 10);
  const svg = made("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "img", "aria-label": label });
  svg.append(...axes(x, y, yLabel, size));
  for (const one of series) svg.append(curve(one, x, y));
  return svg;
}

// A function from numbers to places on the screen, with some room at both ends.
function logarithmic(values, from, to, base) {
  const [low, high] = [Math.log(Math.min(...values)), Math.log(Math.max(...values))];
  const room = 0.04 * (high - low || 1);
  const at = (value) => from + ((Math.log(value) - low + room) / (high - low + 2 * room)) * (to - from);
  const within = (power) => power >= low - room && power <= high + room;
  const first = Math.floor((low - room) / Math.log(base));
  const last = Math.ceil((high + room) / Math.log(base));
  const powers = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  return Object.assign(at, { powers: powers.filter((power) => within(power * Math.log(base))), within });
}

function axes(x, y, yLabel, size) {
  const bottom = size.height - EDGE.bottom;
  const every = Math.ceil((x.powers.length * 80) / size.width);
  const across = x.powers.filter((power) => power % every === 0).map((power) => {
    const place = x(2 ** power);
    return made("g", {}, made("line", { x1: place, x2: place, y1: EDGE.top, y2: bottom, class: "grid" }),
      text(power < 10 ? String(2 ** power) : `2${raised(power)}`, { x: place, y: bottom + 18, "text-anchor": "middle" }));
  });
  const up = ticks(y).map((value) => {
    const place = y(value);
    return made("g", {}, made("line", { x1: EDGE.left, x2: size.width - EDGE.right, y1: place, y2: place, class: "grid" }),
      text(short(value), { x: EDGE.left - 8, y: place + 4, "text-anchor": "end" }));
  });
  const middle = (EDGE.top + bottom) / 2;
  return [...across, ...up,
    text("entries of a vector", { x: (EDGE.left + size.width) / 2, y: size.height - 6, "text-anchor": "middle" }),
    text(yLabel, { x: -middle, y: 14, transform: "rotate(-90)", "text-anchor": "middle" })];
}

// Powers of ten; where there are few of them, some numbers between.
function ticks(y) {
  const steps = y.powers.length >= 3 ? [1] : [1, 2, 5];
  const powers = y.powers.length ? [y.powers[0] - 1, ...y.powers] : [-9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3];
  const all = powers.flatMap((power) => steps.map((step) => step * 10 ** power));
  return all.filter((value) => y.within(Math.log(value)));
}

const text = (content, attributes) => made("text", attributes, content);
const raised = (power) => String(power).replace(/./g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
export const short = (value) => String(Number(value.toPrecision(3)));

function curve({ index, points }, x, y) {
  const line = points.map(({ n, y: value }) => `${x(n).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const group = made("g", { class: `curve c${index % STYLES.length}` });
  if (new Set(points.map(({ n }) => n)).size > 1) group.append(made("polyline", { points: line }));
  for (const { n, y: value, low, high, text: words } of points) {
    const mark = markOf(index, { transform: `translate(${x(n).toFixed(1)},${y(value).toFixed(1)})`, class: "dot" });
    mark.append(made("title", {}, words));
    group.append(made("line", { x1: x(n), x2: x(n), y1: y(low), y2: y(high), class: "spread" }), mark);
  }
  return group;
}
