// The entries of a vector and what becomes of them: pale bars for x, strong ones for its projection, the threshold alpha.
import { cleared, colours } from "./drawing.js";

const MARGIN = { left: 34, right: 12, top: 14, bottom: 10 };

// Returns whether there is a threshold: if nothing shrinks or becomes zero there is none to be seen.
export function drawBars(canvas, { x, value, shift, nonnegative }) {
  const { pen, width, height } = cleared(canvas);
  const colour = colours(canvas);
  const scale = scaleOf(x, value, height);
  const columns = columnsOf(x.length, width);
  drawAxis(pen, colour, scale, width);
  const cuts = shift > 0 || x.some((entry, i) => entry !== 0 && value[i] === 0);
  const threshold = Number.isFinite(shift) && cuts;
  if (threshold) drawThreshold(pen, colour, scale, width, { shift, nonnegative });
  x.forEach((entry, i) => drawEntry(pen, colour, scale, columns(i), entry, value[i]));
  if (threshold) labelThreshold(pen, colour, scale, width, shift);
  return threshold;
}

// Where a number stands on the canvas. Zero is in the middle only if there is something below it.
function scaleOf(x, value, height) {
  const all = [...x, ...value];
  const top = Math.max(...all, 0) || 0.01;
  const bottom = Math.min(...all, 0);
  const unit = (height - MARGIN.top - MARGIN.bottom) / (top - bottom);
  return { y: (number) => MARGIN.top + (top - number) * unit, top, bottom };
}

function columnsOf(n, width) {
  const step = (width - MARGIN.left - MARGIN.right) / n;
  const gap = step > 4 ? 0.16 * step : 0;
  return (i) => ({ left: MARGIN.left + i * step + gap / 2, width: step - gap });
}

function drawAxis(pen, colour, scale, width) {
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of ticksOf(scale)) {
    const y = Math.round(scale.y(tick)) + 0.5;
    pen.strokeStyle = colour.line;
    pen.globalAlpha = tick === 0 ? 1 : 0.5;
    pen.beginPath();
    pen.moveTo(MARGIN.left, y);
    pen.lineTo(width - MARGIN.right, y);
    pen.stroke();
    pen.globalAlpha = 1;
    pen.fillStyle = colour.muted;
    pen.fillText(String(tick).replace("-", "−"), MARGIN.left - 6, y);
  }
}

// A few round numbers.
function ticksOf({ top, bottom }) {
  const rough = (top - bottom) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.ceil(bottom / step);
  const count = Math.floor(top / step) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

// The band of what becomes zero: all |x| up to alpha, or all x up to it.
function drawThreshold(pen, colour, scale, width, { shift, nonnegative }) {
  const edges = nonnegative ? [Math.min(scale.bottom, shift), shift] : [-shift, shift];
  const [low, high] = edges.map((edge) => scale.y(Math.max(scale.bottom, Math.min(scale.top, edge))));
  pen.fillStyle = colour.threshold;
  pen.globalAlpha = 0.13;
  pen.fillRect(MARGIN.left, high, width - MARGIN.left - MARGIN.right, low - high);
  pen.globalAlpha = 1;
}

function drawEntry(pen, colour, scale, column, before, after) {
  const bar = (value, left, width) => {
    const [from, to] = [scale.y(0), scale.y(value)];
    pen.fillRect(left, Math.min(from, to), width, Math.max(Math.abs(to - from), value === 0 ? 0 : 1));
  };
  pen.fillStyle = colour.before;
  bar(before, column.left, column.width);
  pen.fillStyle = colour.result;
  if (after !== 0) bar(after, column.left + 0.25 * column.width, 0.5 * column.width);
}

function labelThreshold(pen, colour, scale, width, shift) {
  const y = scale.y(Math.max(scale.bottom, Math.min(scale.top, shift)));
  pen.strokeStyle = pen.fillStyle = colour.threshold;
  pen.lineWidth = 1.5;
  pen.setLineDash([6, 4]);
  pen.beginPath();
  pen.moveTo(MARGIN.left, y);
  pen.lineTo(width - MARGIN.right, y);
  pen.stroke();
  pen.setLineDash([]);
  pen.textAlign = "right";
  pen.textBaseline = y < 30 ? "top" : "bottom";
  const place = [`α = ${shift.toFixed(2).replace("-", "−")}`, width - MARGIN.right - 2, y < 30 ? y + 4 : y - 4];
  pen.lineWidth = 4;
  pen.strokeStyle = colour.paper;
  pen.strokeText(...place);
  pen.fillText(...place);
}
