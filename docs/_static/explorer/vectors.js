// The vectors that the explorer offers: the same ones whenever they are asked for, with entries of two decimals, so that
// they can be copied exactly.

// A small generator of numbers in [0, 1): a counter whose bits are mixed (after splitmix32).
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

const sign = (random) => (random() < 0.5 ? -1 : 1);
const exponential = (random) => -Math.log(1 - random());

export const normal = (random) => Math.sqrt(2 * exponential(random)) * Math.cos(2 * Math.PI * random());

export const KINDS = {
  normal: { name: "bell-shaped (normal)", draw: normal },
  laplace: { name: "heavier tails (Laplace)", draw: (random) => sign(random) * exponential(random) },
  uniform: { name: "uniform", draw: (random) => 2 * random() - 1 },
  positive: { name: "positive (exponential)", draw: exponential },
  ties: { name: "steps, with ties", draw: (random) => sign(random) * Math.ceil(3 * random()) },
};

export const rounded = (value) => Math.round(100 * value) / 100;

export function drawn(kind, n, seed) {
  const random = generator(7919 * seed + n);
  return Float64Array.from({ length: n }, () => rounded(KINDS[kind].draw(random)));
}

export function long(n) {
  const random = generator(1);
  return Float64Array.from({ length: n }, () => normal(random));
}

// Numbers that somebody wrote, in any of the usual ways to separate them.
export function parsed(text, most) {
  const words = text.replace(/[[\](){}]/g, " ").split(/[\s,;]+/).filter(Boolean);
  const numbers = Float64Array.from(words, Number);
  const wrong = words.find((_, i) => !Number.isFinite(numbers[i]));
  if (wrong !== undefined) throw new RangeError(`“${wrong}” is not a number`);
  if (numbers.length < 2) throw new RangeError("give at least two numbers");
  if (numbers.length > most) throw new RangeError(`${numbers.length} numbers are too many to draw: at most ${most}`);
  return numbers;
}

export function largestFirst(x) {
  return x.slice().sort((a, b) => Math.abs(b) - Math.abs(a) || b - a);
}

export const l1Norm = (x) => x.reduce((sum, value) => sum + Math.abs(value), 0);
export const l2Norm = (x) => Math.hypot(...x);
