// Three dimensions: the curves of vectors with given norms, and how a point is seen from where the reader has turned to.

export const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const plus = (...vectors) => [0, 1, 2].map((i) => vectors.reduce((sum, vector) => sum + vector[i], 0));
const times = (factor, vector) => vector.map((value) => factor * value);

// Three unit vectors: to the right, upwards, and towards the eye.
export function camera({ turn, tilt }) {
  const [c, s, up, along] = [Math.cos(turn), Math.sin(turn), Math.sin(tilt), Math.cos(tilt)];
  return { right: [-s, c, 0], up: [-c * up, -s * up, along], eye: [c * along, s * along, up] };
}

// A movement in the plane of the screen, as a movement in space.
export function moved(point, { right, up }, byRight, byUp) {
  return plus(point, times(byRight, right), times(byUp, up));
}

export const OCTANTS = Array.from({ length: 8 }, (_, octant) => [0, 1, 2].map((i) => ((octant >> i) & 1 ? -1 : 1)));

// All vectors with the norms l1 and l2: in each octant a circle, as far as it lies in that octant. It is whole if no entry
// can be zero, and three arcs otherwise.
export function curves(l1, l2, nonnegative) {
  const arcs = circleParts(l1, l2);
  const octants = nonnegative ? OCTANTS.slice(0, 1) : OCTANTS;
  return octants.flatMap((signs) => arcs.map((arc) => arc.map((point) => point.map((value, i) => signs[i] * value))));
}

function circleParts(l1, l2) {
  const centre = times(l1 / 3, [1, 1, 1]);
  const radius = Math.sqrt(Math.max(0, l2 * l2 - (l1 * l1) / 3));
  const first = times(radius / Math.SQRT2, [1, -1, 0]);
  const second = times(radius / Math.sqrt(6), [1, 1, -2]);
  const at = (angle) => plus(centre, times(Math.cos(angle), first), times(Math.sin(angle), second));
  return anglesInside(l1, radius).map(([from, to]) =>
    Array.from({ length: 61 }, (_, i) => at(from + ((to - from) * i) / 60).map((value) => Math.max(0, value))),
  );
}

// Where on the circle no entry is negative. Entry i is l1/3 + radius √(2/3) cos(angle - PEAKS[i]).
const PEAKS = [1, 5, 9].map((twelfth) => (twelfth * Math.PI) / 6);

function anglesInside(l1, radius) {
  const cosine = l1 / (radius * Math.sqrt(6));
  if (!(cosine < 1)) return [[0, 2 * Math.PI]];
  // Around each peak, until one of the two other entries is zero.
  const reach = Math.PI / 3 - Math.acos(cosine);
  return PEAKS.map((peak) => [peak - reach, peak + reach]);
}
