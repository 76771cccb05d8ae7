// The sets that the explorer projects onto: which dials each one has, and the arguments of hoyer.project that name it.
import { l1Norm, l2Norm, rounded } from "./vectors.js";

// Norms are turned as shares of those of x, so that one dial serves vectors of any size; what is asked for are numbers
// of two decimals.
const share = (part, norm) => Math.max(0.01, rounded(part * norm));
const l1Of = (dials, x) => share(dials.l1, l1Norm(x));
const l2Of = (dials, x) => share(dials.l2, l2Norm(x));

const bySparseness = ({ sparseness, norm, nonnegative }) => ({
  sparseness,
  ...(norm === "one" ? {} : { l2: norm }),
  ...(nonnegative ? { nonnegative } : {}),
});
const within = ({ nonnegative }) => ({ ...(nonnegative ? { nonnegative } : {}), at_most: true });

const WITH_NORM = {
  keep: ". It keeps the norm of x, unless you choose otherwise", one: " and has norm 1", nearest: ", whatever its norm",
};

export const SETS = {
  sparseness: {
    name: "vectors exactly this sparse",
    members: "that is exactly that sparse",
    dials: ["sparseness", "norm", "nonnegative"],
    options: bySparseness,
  },
  increase: {
    name: "vectors at least this sparse",
    members: "that is at least that sparse",
    dials: ["sparseness", "norm", "nonnegative"],
    options: (dials) => ({ ...bySparseness(dials), only_increase: true }),
  },
  simplex: {
    name: "the simplex (sparsemax)",
    members: "without negative entries that has this sum",
    dials: ["l1"],
    options: (dials, x) => ({ l1: l1Of(dials, x), nonnegative: true }),
  },
  sphere: {
    name: "the L1 sphere",
    members: "that has this L1 norm",
    dials: ["l1"],
    options: (dials, x) => ({ l1: l1Of(dials, x) }),
  },
  ball: {
    name: "the L1 ball (lasso)",
    members: "that has at most this L1 norm",
    dials: ["l1", "nonnegative"],
    options: (dials, x) => ({ l1: l1Of(dials, x), ...within(dials) }),
  },
  balls: {
    name: "the L1 ball ∩ L2 ball",
    members: "that has at most these two norms",
    dials: ["l1", "l2", "nonnegative"],
    options: (dials, x) => ({ l1: l1Of(dials, x), l2: l2Of(dials, x), ...within(dials) }),
  },
};

// What the dials are for.
export function introduction({ set, norm, nonnegative }) {
  const { dials, members } = SETS[set];
  const sign = nonnegative && dials.includes("nonnegative") ? "nonnegative " : "";
  const question = dials.includes("sparseness") ? "How sparse should a vector be? " : "";
  const withNorm = dials.includes("norm") ? WITH_NORM[norm] : "";
  const move = dials.includes("l2") ? "Move the dials" : "Move the dial";
  return `${question}${move}, and hoyer finds the nearest ${sign}vector ${members}${withNorm}.`;
}

const literal = (value) => {
  if (typeof value === "string") return `"${value}"`;
  if (typeof value === "boolean") return value ? "True" : "False";
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
};

// The call of Python that these options are.
export function call(options, x = "x") {
  const words = Object.entries(options).map(([name, value]) =>
    name === "sparseness" ? literal(value) : `${name}=${literal(value)}`,
  );
  return `hoyer.project(${[x, ...words].join(", ")})`;
}

// All that has to be typed to get the same numbers.
export function program(options, x) {
  const entries = Array.from(x, String).join(", ");
  const wrapped = `x = np.array([${entries}])`.replace(/(.{1,88}(?:, |$))/g, "$1\n    ").trimEnd();
  const lines = wrapped.split("\n").map((line) => line.trimEnd());
  return ["import hoyer, numpy as np", ...lines, `p = ${call(options)}`].join("\n");
}
