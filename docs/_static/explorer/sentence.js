// What a projection has done to x, in words.

// Two decimals, more where they would hide a small amount, or how a factor differs from 1.
const amount = (value) => (value < 0.1 ? String(Number(value.toPrecision(2))) : value.toFixed(2));
const factor = (value) => (Math.abs(value - 1) < 0.01 ? String(Number(value.toPrecision(5))) : amount(value));

export function sentence(x, options, result) {
  const seen = { x, ...options, ...result, ...counted(x, options, result) };
  if (seen.nothingLarge && seen.active !== "none") return withoutDirection(seen);
  if (seen.active === "none" || seen.active === "l2") return withinBounds(seen);
  if (!Number.isFinite(seen.shift)) return withoutShift(seen);
  if (seen.unshifted) return `x is exactly that ${seen.sparseness === undefined ? "large" : "sparse"} already${onlyTheNorm(seen)}.`;
  if (seen.supportSize === 1 && seen.zeroed > 0) return "Only the largest entry stays; all others become zero.";
  return seen.nonnegative ? moved(seen) : resized(seen);
}

// Sizes are what is compared: those of x itself if p may have no negative entries.
function counted(x, { nonnegative }, { value, shift }) {
  const sizes = nonnegative ? x : x.map(Math.abs);
  const largest = Math.max(...sizes);
  return {
    largest,
    ties: sizes.filter((size) => size === largest).length,
    zeroed: x.filter((entry, i) => entry !== 0 && value[i] === 0).length,
    nothingLarge: x.every((entry) => entry === 0) || value.every((entry) => entry === 0),
    unshifted: Math.abs(shift) <= 1e-12 * Math.abs(largest),
  };
}

const rescaled = ({ scale }) => (scale === 1 ? "" : `, then all are rescaled (÷ ${factor(scale)})`);
const onlyTheNorm = ({ scale }) => (scale === 1 ? ": nothing changes" : `: only its norm changes (÷ ${factor(scale)})`);

// Either x or p is zero.
function withoutDirection({ x, value, sparseness }) {
  if (x.some((entry) => entry !== 0)) return "All nonnegative vectors that sparse point away from x, so zero is the nearest.";
  if (value.every((entry) => entry === 0)) return "x is zero, and so is p. Zero has no sparseness.";
  if (sparseness === undefined || sparseness === 0) return "x is zero: all entries become equal.";
  return "x is zero, so all these vectors are equally near; the first entry is preferred.";
}

function withinBounds(seen) {
  const { sparseness, active, zeroed } = seen;
  const bounds = sparseness !== undefined ? "sparse enough" : active === "l2" ? "within the L1 bound" : "within the bounds";
  if (zeroed === 0) return `x is ${bounds} as it is${onlyTheNorm(seen)}.`;
  return `Negative entries become zero; what is left is ${bounds}${onlyTheNorm(seen)}.`;
}

// All alike, or the largest entries are equal and would have to differ.
function withoutShift({ x, value, sparseness, nonnegative, ties, supportSize }) {
  if (sparseness === 0) return `All ${x.length} entries become equal${nonnegative ? "" : " in size"}.`;
  const preferred = `${ties === x.length ? "All" : ties} entries are equally large: the first one is preferred`;
  const rest = supportSize === 1 ? "all others become zero" : "the others share what is left";
  const smaller = supportSize > 1 && x.some((entry, i) => entry !== 0 && value[i] === 0);
  return `${preferred}, ${rest}${smaller ? ", and smaller ones become zero" : ""}.`;
}

// Signs are kept.
function resized(seen) {
  const { x, shift, supportSize, zeroed, before, after } = seen;
  if (shift < 0) return `${after < before ? "p is less sparse than x: each" : "Each"} entry grows by ${amount(-shift)}${rescaled(seen)}.`;
  const kept = supportSize === x.length ? `All ${x.length}` : `${supportSize} of ${x.length}`;
  return `${kept} entries stay. Each shrinks by α = ${amount(shift)}${zeroed ? ", smaller ones become zero" : ""}${rescaled(seen)}.`;
}

// Up or down, whatever the sign.
function moved(seen) {
  const { x, value, shift, supportSize } = seen;
  const way = shift < 0 ? `raised by ${amount(-shift)}` : `lowered by α = ${amount(shift)}`;
  const cut = value.some((entry) => entry === 0);
  const zero = cut ? `; what is ${shift < 0 ? "still" : "then"} negative becomes zero` : "";
  const left = cut ? `${supportSize} of ${x.length} are left` : `All ${x.length} entries are then positive`;
  return `Every entry is ${way}${zero}${rescaled(seen)}. ${left}.`;
}
